"""The model's shape, the batches and the clock, which all workers of training.py share.

It needs torch and numpy but nothing of regard, because it also runs in the environments of the
other programs.
"""

import ctypes
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from worker import serve

RATE = 1e-4
BETAS = (0.9, 0.98)
EPSILON = 1e-9


class Shape(NamedTuple):
    """The shape of the model, which is the same for all contenders."""

    layers: int
    d_model: int
    d_ff: int
    heads: int
    dropout: float
    label_smoothing: float
    vocabulary: int
    """Rows of the embedding matrix, shared by source, target and output."""


class Batch(NamedTuple):
    """Ids, rows x length, int64; 0 is padding, and each row ends in </s>."""

    source: Tensor
    target: Tensor
    """<s> and the labels but the last: what the decoder reads."""
    labels: Tensor
    source_segments: Tensor
    """The number of a token's sentence in its row, from 1; from here on, for packed rows only."""
    target_segments: Tensor
    source_positions: Tensor
    target_positions: Tensor

    @property
    def tokens(self) -> int:
        """Tokens of source and target, without padding."""
        return int((self.source != 0).sum() + (self.labels != 0).sum())


Rounds = list[list[Batch]]


def load(folder: Path) -> tuple[Shape, Rounds]:
    """The shape, and the batches of each round, as training.py wrote them."""
    described = json.loads((folder / "shape.json").read_text())
    with np.load(folder / "batches.npz") as arrays:
        batches = (
            Batch(*(torch.from_numpy(arrays[f"{i}.{name}"]) for name in Batch._fields))
            for i in count()
        )
        rounds = [list(islice(batches, steps)) for steps in described["steps"]]
    return Shape(**described["shape"]), rounds


Step = Callable[[Batch], Tensor]
"""One optimizer step; returns the loss per target token, in nats, so that all can be compared."""


def smoothed_loss(logits: Tensor, batch: Batch, shape: Shape) -> Tensor:
    """PyTorch's own smoothed loss: the mean over target tokens, from all logits at once."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        batch.labels.flatten(),
        ignore_index=0,
        label_smoothing=shape.label_smoothing,
    )


def train_in_turn(
    precision: str,
    version: dict[str, str],
    prepare: Callable[[Shape], tuple[nn.Module, Step]],
    regroup: Callable[[Rounds], Rounds] = lambda rounds: rounds,
) -> None:
    """Serve requests: in each round, one timed step with each of the round's batches.

    Two steps with each batch, which are not timed, come before. The first argument of the command
    is the folder of the batches, which `regroup` may change.
    """

    def start() -> tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]:
        shape, rounds = load(Path(sys.argv[1]))
        rounds = regroup(rounds)
        torch.manual_seed(1)
        model, step = prepare(shape)

        def turn(request: dict[str, Any]) -> dict[str, Any]:
            batches = rounds[request["round"]]
            for batch in batches * 2:  # fetches memory again, which a long run would keep
                step(batch)
            begin = time.perf_counter()
            losses = [step(batch).detach() for batch in batches]
            loss = float(losses[-1])  # waits until everything before it is computed
            seconds = time.perf_counter() - begin
            give_free_memory_back()
            tokens = sum(batch.tokens for batch in batches)
            return {"seconds": seconds, "tokens": tokens, "loss": loss}

        about = {
            "name": Path(sys.argv[0]).stem,
            "version": {"torch": torch.__version__} | version,
            "precision": precision,
            "parameters": sum(p.numel() for p in model.parameters()),
            "threads": torch.get_num_threads(),
        }
        return about, turn

    serve(start)


def give_free_memory_back() -> None:
    """Give free memory to the system: waiting contenders would together keep too much of it."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
