"""JoeyNMT: its model, loss, batches and optimizer, in the step of its own TrainManager.

Only the loop over files is left out. Arguments: folder, and optionally "own": then JoeyNMT's own
sampler makes the batches, from sentences of the whole text at random, whatever their lengths.

JoeyNMT's loss with label smoothing is a divergence: the loss of the other programs minus the
entropy of the smoothed targets. This entropy is added to the loss that is reported.
"""

import math
import sys
from itertools import chain, islice, repeat
from pathlib import Path
from types import SimpleNamespace

import joeynmt
import numpy as np
import torch
import torch.nn.functional as F
from joeynmt.batch import Batch as JoeyBatch
from joeynmt.builders import build_optimizer
from joeynmt.datasets import TokenBatchSampler
from joeynmt.model import build_model
from joeynmt.training import TrainManager
from joeynmt.vocabulary import Vocabulary
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import RandomSampler
from training_batches import BETAS, RATE, Batch, Shape, Step, train_in_turn

UNKNOWN, PAD, BOS, EOS = range(4)
CPU = torch.device("cpu")


def prepare(shape: Shape) -> tuple[nn.Module, Step]:
    stack = {
        "type": "transformer",
        "num_layers": shape.layers,
        "num_heads": shape.heads,
        "hidden_size": shape.d_model,
        "ff_size": shape.d_ff,
        "dropout": shape.dropout,
        "layer_norm": "post",
        "embeddings": {"embedding_dim": shape.d_model, "scale": True, "dropout": shape.dropout},
    }
    recipe = {
        "encoder": stack,
        "decoder": stack,
        "tied_embeddings": True,
        "tied_softmax": True,
        "embed_initializer": "normal",
        "embed_init_weight": shape.d_model**-0.5,
    }
    words = vocabulary(shape.vocabulary)
    model = build_model(recipe, words, words)
    model.loss_function = ("crossentropy", shape.label_smoothing)
    optimizer = build_optimizer(
        {"optimizer": "adam", "learning_rate": RATE, "adam_betas": BETAS}, model.parameters()
    )
    manager = SimpleNamespace(
        model=model,
        autocast={"device_type": "cpu", "enabled": False},
        args=SimpleNamespace(normalization="tokens", batch_multiplier=1),
        n_gpu=0,
        scaler=None,
    )
    entropy = smoothed_entropy(shape.label_smoothing, shape.vocabulary)

    def step(batch: Batch) -> Tensor:
        loss, _ = TrainManager._train_step(manager, as_theirs(batch))
        optimizer.step()
        model.zero_grad()
        return torch.tensor(loss + entropy)

    return model, step


def vocabulary(size: int) -> Vocabulary:
    special = SimpleNamespace(
        unk_token="<unk>", pad_token="<pad>", bos_token="<s>", eos_token="</s>", sep_token=None,
        unk_id=UNKNOWN, pad_id=PAD, bos_id=BOS, eos_id=EOS, sep_id=None, lang_tags=[],
    )  # fmt: skip
    return Vocabulary([str(i) for i in range(4, size)], special)


def as_theirs(batch: Batch) -> JoeyBatch:
    """A batch with JoeyNMT's order of special symbols, and <s> and </s> around the target."""
    source, labels = as_numbered_there(batch.source), as_numbered_there(batch.labels)
    begin = torch.full((len(labels), 1), BOS)
    return JoeyBatch(
        source, (source != PAD).sum(1), None, torch.cat([begin, labels], 1), None,
        torch.arange(len(source)), CPU, PAD, EOS,
    )  # fmt: skip


def as_numbered_there(ids: Tensor) -> Tensor:
    """Padding, <s>, </s> and the first byte are 0, 1, 2, 3 here and 1, 2, 3, 0 there."""
    return torch.where(ids < 4, (ids + 1) % 4, ids)


def own_batches(rounds: list[list[Batch]]) -> list[list[Batch]]:
    """Draw as many batches as `rounds` has, as large as its largest, by JoeyNMT's own sampler."""
    data = Path(sys.argv[1]).parent / "data"
    pairs = list(
        zip(repeat(None), sentences(data, "source"), sentences(data, "target"), strict=False)
    )
    size = max(max(b.source.numel(), b.labels.numel()) for some in rounds for b in some)
    sampler = TokenBatchSampler(RandomSampler(pairs), size, drop_last=True, seed=1)
    drawn = chain.from_iterable(repeat(sampler))
    return [
        [padded([pairs[i] for i in indices]) for indices in islice(drawn, len(some))]
        for some in rounds
    ]


def sentences(data: Path, side: str) -> list[Tensor]:
    """One side of the training pairs, without </s>, which the sampler counts itself."""
    ids = np.load(data / f"train.{side}.ids.npy").astype(np.int64)
    starts = np.load(data / f"train.{side}.starts.npy")
    return [torch.from_numpy(sentence[:-1]) for sentence in np.split(ids, starts[1:-1])]


def padded(pairs: list[tuple[None, Tensor, Tensor]]) -> Batch:
    _, *sides = zip(*pairs, strict=True)
    source, labels = (
        pad_sequence([F.pad(ids, (0, 1), value=2) for ids in side], batch_first=True)
        for side in sides
    )
    return Batch(source, labels, labels, *4 * [source])  # only source and labels are used


def smoothed_entropy(smoothing: float, size: int) -> float:
    others = smoothing / (size - 2)  # neither the label nor padding
    return -(1 - smoothing) * math.log(1 - smoothing) - smoothing * math.log(others)


if __name__ == "__main__":
    train_in_turn(
        str(torch.float32),
        {"joeynmt": joeynmt.__version__},
        prepare,
        own_batches if "own" in sys.argv else list,
    )
