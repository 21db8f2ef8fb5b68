"""Table 4 on the trees at hand: score a parser on gold trees, or print what has been scored.

    .venv/bin/python experiments/table4/table4.py runs/wsj-silver $REGARD_DATA/wsj-sample/test.mrg
    .venv/bin/python experiments/table4/table4.py

Sentences are given to the parser as the words of the gold trees; traces and function tags are
stripped. Figures are EVALB's by COLLINS.prm, all lengths, the whole test set: the bracket around a
tree is not counted.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from regard.data.treebank import Treebank
from regard.errors import RegardError
from regard.measure.validation import compare_trees
from regard.paper import TABLE_4
from regard.parsing import load

RESULTS = Path(__file__).with_name("result.json")
BERKELEY = {"wsj-sample/dev": 86.6, "wsj-sample/test": 86.1, "craft/dev": 83.3}
"""F1 of the Berkeley parser, trained on the same gold trees in 4 split-merge cycles."""


def scored(run: Path, gold_file: Path, beam: int | None, precision: str) -> dict[str, Any]:
    """Parse the sentences of a file of gold trees, and compare."""
    gold = [tree for tree in Treebank([gold_file]).trees() if tree is not None]
    parser = load(run, precision=precision)
    if beam is not None:
        parser.recipe = parser.recipe.but(beam=beam)
    started = time.perf_counter()
    found = parser.parse(tree.words() for tree in gold)
    seconds = time.perf_counter() - started
    figures = compare_trees(found, gold).figures()
    return {
        "f1": round(figures["f"], 2) if figures["recall"] else 0.0,
        "recall": round(figures["recall"], 2),
        "precision": round(figures["precision"], 2),
        "complete_match": round(figures["complete_match"], 2),
        "tagging_accuracy": round(figures["tagging_accuracy"], 2),
        "sentences": len(gold),
        "left_out": figures["error"],  # since other words are punctuation in the gold tree
        "beam": parser.recipe.beam,
        "precision_of_numbers": precision,
        "parse_seconds": round(seconds, 1),
        "threads": torch.get_num_threads(),
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Table 4 as the paper printed it, then the Berkeley parser and ours on smaller treebanks."""
    lines = [
        "| parser | trained on | tested on | F1 |",
        "|---|---|---|---:|",
        *(
            f"| {row.name} | {row.training} (40,000 gold trees) | WSJ section 23 | {row.f1} |"
            for row in TABLE_4
        ),
        *(
            f"| Berkeley parser, 4 split-merge cycles | {test.split('/')[0]} | {test} | {f1} |"
            for test, f1 in BERKELEY.items()
        ),
        *(
            f"| regard | {run} | {test} | {figures['f1']:.1f} |"
            for run, tests in results.items()
            for test, figures in tests.items()
        ),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, nargs="?", help="a run directory; its name is the row's")
    parser.add_argument("gold", type=Path, nargs="?", help="gold trees")
    parser.add_argument("--beam", type=int)
    parser.add_argument("--precision", default="fp32")
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    if given.run and not given.gold:
        parser.error("give the gold trees, too")
    if given.run:
        test = "/".join([given.gold.parent.name, given.gold.stem])
        found = scored(given.run, given.gold, given.beam, given.precision)
        results.setdefault(given.run.name, {})[test] = found
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
        print(json.dumps(found))  # noqa: T201
    else:
        print(table(results))  # noqa: T201


if __name__ == "__main__":
    try:
        main()
    except RegardError as error:
        raise SystemExit(str(error)) from None
