"""Training speed: regard and other programs, on the same batches and model shape.

    make bench-setup                            # once: each program in an environment of its own
    .venv/bin/python benchmarks/training.py --source train.en --target train.de --shape base

The programs take turns, each in a process of its own (side_by_side.py); peers/training_*.py has
what each of them does. All have the same vocabulary and the same batches, padded and grouped by
length so that none is at a disadvantage; JoeyNMT runs a second time on batches that it makes
itself. With `--layout packed` regard has packed rows of the same text instead, the default of
`regard train`. Without --source the text is the built-in corpus. Reading batches from disk is not
timed. Tokens of source and target are counted together, without padding.

`of ceiling` is the model's FLOP in matrix products with weights, divided by the time and by the
speed of the fastest matrix product measured in the same rounds, in the precision of that program;
int8, which uses two precisions, has none. --keep writes a JSON record.
"""

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regard.corpus import write_corpus
from regard.cost import Flop, flop
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.data.prepare import prepare_text
from regard.recipe import Recipe

sys.path.insert(0, str(Path(__file__).parent))  # also where this is imported
import side_by_side as sides

SHAPES = {
    "tiny": Recipe().but(layers=1, d_model=32, d_ff=64, heads=2, vocabulary=400),
    "small": Recipe().but(layers=3, d_model=256, d_ff=1024, heads=4, vocabulary=8000),
    "base": Recipe(),
}
OURS, OURS_FP32, OURS_INT8 = REGARD = "regard", "regard fp32", "regard int8"
PLAIN = "torch.nn.Transformer"
OWN_BATCHES = "JoeyNMT, own batches"
CEILING = "matrix products"

CONTENDERS = [
    sides.Contender(OURS, "training_regard.py", ["auto"]),
    sides.Contender(OURS_FP32, "training_regard.py", ["fp32"]),
    sides.Contender(OURS_INT8, "training_regard.py", ["int8"]),
    sides.Contender(PLAIN, "training_torch.py", ["fp32"]),
    sides.Contender(
        f"{PLAIN}, malloc set", "training_torch.py", ["fp32"], variables=sides.KEEP_FREED_MEMORY
    ),
    sides.Contender(f"{PLAIN} bf16", "training_torch.py", ["bf16"]),
    sides.Contender("Marian", "training_marian.py", environment="transformers"),
    sides.Contender("JoeyNMT", "training_joeynmt.py", environment="joeynmt"),
    sides.Contender(OWN_BATCHES, "training_joeynmt.py", ["own"], environment="joeynmt"),
    sides.Contender(CEILING, "training_ceiling.py"),
]


def lengths(batches: Sequence[Batch]) -> tuple[list[int], list[int]]:
    """Tokens of each sentence of the batches, of source and target."""
    counts: tuple[list[int], list[int]] = ([], [])
    for batch in batches:
        for count, rows in zip(counts, (batch.source, batch.target), strict=True):
            for row in rows.segments.numpy():
                count.extend(np.bincount(row)[1:].tolist())
    return counts


def shape_of(recipe: Recipe) -> dict[str, Any]:
    """The model's shape, as peers/training_batches.py names its fields."""
    model = recipe.model
    return {
        "layers": model.layers,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "heads": model.heads,
        "dropout": model.dropout,
        "label_smoothing": recipe.training.label_smoothing,
        "vocabulary": recipe.tokenizer.vocabulary,
    }


def write_rounds(folder: Path, rounds: list[list[Batch]], shape: dict[str, Any]) -> None:
    """Write the files that peers/training_batches.py loads."""
    folder.mkdir(exist_ok=True)
    arrays = {}
    for i, batch in enumerate(batch for some in rounds for batch in some):
        arrays[f"{i}.labels"] = batch.labels.numpy()
        for side, rows in (("source", batch.source), ("target", batch.target)):
            arrays[f"{i}.{side}"] = rows.ids.numpy()
            arrays[f"{i}.{side}_segments"] = rows.segments.numpy()
            arrays[f"{i}.{side}_positions"] = rows.positions.numpy()
    np.savez(folder / "batches.npz", **arrays)
    described = {"shape": shape, "steps": [len(some) for some in rounds]}
    (folder / "shape.json").write_text(json.dumps(described))


def prepared(args: argparse.Namespace, recipe: Recipe, folder: Path) -> Pairs:
    """The training pairs of the text that was named, or else of the built-in corpus."""
    if not args.source:
        write_corpus(folder / "corpus", seed=1, sentences=10_000)
        args.source, args.target = [folder / "corpus.en"], [folder / "corpus.de"]
    prepare_text(args.source, args.target, folder / "data", recipe)
    return Pairs.open(folder / "data", "train")


def summary(results: dict[str, sides.Result], work: dict[str, list[Flop]]) -> dict[str, Any]:
    """The speed of each contender, how much faster regard is, and its share of the ceiling.

    `work` has the FLOP that a contender computes in each round.
    """
    ceiling = results[CEILING].turns if CEILING in results else []
    trained = {name: result for name, result in results.items() if name != CEILING}
    speeds = {name: result.per_second("tokens") for name, result in trained.items()}
    summaries = {}
    for name, result in trained.items():
        spreads = {"tokens_per_second": sides.Spread.of(speeds[name])}
        if OURS in speeds:
            spreads["regard_is_faster"] = sides.ratio(speeds[OURS], speeds[name])
        if OURS_INT8 in speeds:
            spreads["int8_is_faster"] = sides.ratio(speeds[OURS_INT8], speeds[name])
        limits = [turn["flop_per_second"].get(result.about["precision"]) for turn in ceiling]
        if name in work and limits and all(limits):
            done = [f.weights / s for f, s in zip(work[name], result.seconds, strict=True)]
            spreads["of_ceiling"] = sides.ratio(done, limits)
        summaries[name] = {
            **result.about,
            **{key: spread._asdict() for key, spread in spreads.items()},
            "turns": result.turns,
        }
    return {"contenders": summaries, "ceiling": ceiling}


def show(record: dict[str, Any]) -> None:
    """Print the summaries as a table, and the ceiling, which "of ceiling" is a share of."""

    def cell(summary: dict[str, Any], key: str, form: str) -> str:
        return sides.Spread(**summary[key]).text(form) if key in summary else "-"

    header = [
        "",
        "precision",
        "tokens/s",
        "regard is faster",
        "regard int8 is",
        "of ceiling",
        "loss",
        "peak GB",
    ]
    rows = [
        [
            name,
            summary["precision"].removeprefix("torch."),
            cell(summary, "tokens_per_second", ",.0f"),
            cell(summary, "regard_is_faster", ".2f"),
            cell(summary, "int8_is_faster", ".2f"),
            cell(summary, "of_ceiling", ".0%"),
            f"{summary['turns'][-1]['loss']:.2f}",
            f"{summary['turns'][-1]['peak_memory'] / 1e9:.1f}",
        ]
        for name, summary in record["contenders"].items()
    ]
    sides.print_table(header, rows)
    if record["ceiling"]:
        for precision in record["ceiling"][0]["flop_per_second"]:
            rate = sides.Spread.of(t["flop_per_second"][precision] / 1e9 for t in record["ceiling"])
            print(f"ceiling: {rate.text()} GFLOP/s in {precision.removeprefix('torch.')}")


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--source", type=Path, nargs="+", help="text, a sentence a line")
    parser.add_argument("--target", type=Path, nargs="+", help="its translation, line by line")
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--tokens", type=int, default=4096, help="of a batch, on each side")
    parser.add_argument("--steps", type=int, default=4, help="in a turn")
    parser.add_argument("--layout", choices=["grouped", "packed"], default="grouped")
    sides.add_options(parser)
    args = parser.parse_args()
    if bool(args.source) != bool(args.target):
        parser.error("give --source and --target, or neither")
    return args


def main() -> None:
    args = parsed()
    contenders = sides.chosen(CONTENDERS, args.only)
    record = {"benchmark": "training", **sides.circumstances(args.threads)}
    recipe = SHAPES[args.shape].but(source_tokens=args.tokens, target_tokens=args.tokens)
    model, vocabulary = recipe.model, recipe.tokenizer.vocabulary
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pairs = prepared(args, recipe, folder)
        work = {}
        for layout in ("grouped", args.layout):
            batches = Batches(pairs, recipe.data, seed=1, layout=layout)
            rounds = [batches.take(args.steps) for _ in range(args.rounds + 1)]
            write_rounds(folder / layout, rounds, shape_of(recipe))
            work[layout] = [flop(model, vocabulary, *lengths(some)) for some in rounds[1:]]
        layouts = {c.name: args.layout if c.name in REGARD else "grouped" for c in contenders}
        contenders = [
            dataclasses.replace(c, arguments=[str(folder / layouts[c.name]), *c.arguments])
            for c in contenders
        ]
        results, failures = sides.compare(contenders, args.rounds, args.threads)
    done = {name: work[layout] for name, layout in layouts.items() if name != OWN_BATCHES}
    record |= {
        "shape": shape_of(recipe),
        "text": [path.name for path in (*args.source, *args.target)],
        "batch": f"{args.tokens} + {args.tokens} tokens, padding included",
        "steps_in_a_turn": args.steps,
        "layouts": layouts,
        "flop": {layout: [f._asdict() for f in flops] for layout, flops in work.items()},
        **summary(results, done),
        "failures": failures,
    }
    show(record)
    if args.keep:
        print(sides.keep(record, args.keep, f"training-{args.shape}"))


if __name__ == "__main__":
    main()
