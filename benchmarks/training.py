"""Training speed, side by side with the straightforward loop, on the same batches and model.

    .venv/bin/python benchmarks/training.py --source train.en --target train.de --shape small

The peer is what one writes first: torch.nn.Transformer in fp32, padded batches, full logits,
F.cross_entropy, Adam over a list of tensors. Both train in one process, in turn (A B A B ...), so
that only the ratio of the medians counts, whatever the machine is doing. Without --source the
built-in corpus is used. A JSON record is kept with --keep.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.data.prepare import prepare
from regard.layers import sinusoids
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.run.devices import choose_device, choose_dtype, keep_freed_memory
from regard.train import update
from regard.transformer import Transformer

SHAPES = {
    "small": Recipe().but(
        layers=3, d_model=256, d_ff=1024, heads=4, vocabulary=8000,
        source_tokens=4096, target_tokens=4096, held_out=100,
    ),
    "base": Recipe().but(source_tokens=4096, target_tokens=4096, held_out=100),
}  # fmt: skip


class Straightforward(nn.Module):
    """The same model as a tutorial writes it."""

    def __init__(self, recipe: Recipe, vocabulary: int):
        super().__init__()
        m = recipe.model
        self.embedding = nn.Embedding(vocabulary, m.d_model)
        nn.init.normal_(self.embedding.weight, std=m.d_model**-0.5)
        self.register_buffer("positions", sinusoids(512, m.d_model))
        self.dropout = nn.Dropout(m.dropout)
        self.transformer = nn.Transformer(
            m.d_model, m.heads, m.layers, m.layers, m.d_ff, m.dropout, batch_first=True
        )

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: ids.shape[1]])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == 0
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        states = self.transformer(
            self.embed(source), self.embed(target), tgt_mask=future,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return F.linear(states, self.embedding.weight)


class Ours:
    """The loop of regard.train, without its files."""

    name = "regard"

    def __init__(self, recipe: Recipe, vocabulary: int):
        self.recipe, device = recipe, choose_device()
        self.dtype = choose_dtype(recipe.training.precision, device)
        self.model = Transformer(recipe.model, vocabulary).train()
        self.optimizer = FlatAdam(self.model, recipe.training, self.dtype)

    def step(self, batch: Batch) -> None:
        update(self.model, self.optimizer, [batch], 1e-4, self.recipe.training.label_smoothing)


class Peer:
    """The straightforward loop."""

    name = "torch.nn.Transformer"

    def __init__(self, recipe: Recipe, vocabulary: int):
        self.smoothing = recipe.training.label_smoothing
        self.model = Straightforward(recipe, vocabulary).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-4, (0.9, 0.98), 1e-9)

    def step(self, batch: Batch) -> None:
        self.optimizer.zero_grad()
        logits = self.model(batch.source.ids, batch.target.ids)
        F.cross_entropy(
            logits.flatten(0, 1), batch.labels.flatten(),
            ignore_index=0, label_smoothing=self.smoothing,
        ).backward()  # fmt: skip
        self.optimizer.step()


def tokens_per_second(loop: Ours | Peer, batches: list[Batch]) -> float:
    start = time.perf_counter()
    for batch in batches:
        loop.step(batch)
    seconds = time.perf_counter() - start
    return sum(batch.source_tokens + batch.target_tokens for batch in batches) / seconds


def load_batches(args: argparse.Namespace, recipe: Recipe, folder: Path) -> tuple[Batches, int]:
    if not args.source:
        from regard.data.grammar import write_corpus

        write_corpus(folder / "corpus", seed=1, pairs=10_000)
        args.source, args.target = [folder / "corpus.en"], [folder / "corpus.de"]
    prepare(args.source, args.target, folder / "data", recipe)
    from regard.text.tokenizer import Tokenizer

    size = Tokenizer.load(folder / "data" / "tokenizer.json").size
    return Batches(Pairs.open(folder / "data", "train"), recipe.data, 1, layout="grouped"), size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, nargs="+")
    parser.add_argument("--target", type=Path, nargs="+")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each loop")
    parser.add_argument("--steps", type=int, default=4, help="steps in a turn")
    parser.add_argument("--keep", type=Path, help="folder for a JSON record")
    args = parser.parse_args()
    recipe = SHAPES[args.shape]
    with tempfile.TemporaryDirectory() as folder:
        batches, vocabulary = load_batches(args, recipe, Path(folder))
        torch.manual_seed(1)
        keep_freed_memory()  # for both
        loops = [Ours(recipe, vocabulary), Peer(recipe, vocabulary)]
        rates: dict[str, list[float]] = {loop.name: [] for loop in loops}
        for turn in range(args.rounds + 1):
            some = batches.take(args.steps)
            for loop in loops:
                rate = tokens_per_second(loop, some)
                if turn > 0:  # the first turn warms up
                    rates[loop.name].append(rate)
    record = {
        "date": date.today().isoformat(),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "shape": args.shape,
        "vocabulary": vocabulary,
        "batch": f"{recipe.data.source_tokens} + {recipe.data.target_tokens} tokens",
        "precision": {"regard": str(loops[0].dtype), "torch.nn.Transformer": "torch.float32"},
        "tokens_per_second": {name: round(statistics.median(r)) for name, r in rates.items()},
        "spread": {name: [round(min(r)), round(max(r))] for name, r in rates.items()},
    }
    medians = record["tokens_per_second"]
    record["ratio"] = round(medians["regard"] / medians["torch.nn.Transformer"], 2)
    print(json.dumps(record, indent=1))
    if args.keep:
        args.keep.mkdir(parents=True, exist_ok=True)
        path = args.keep / f"{record['date']}-training-{args.shape}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
