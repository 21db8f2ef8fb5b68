"""Measure whether the score of a silver tree tells how good it is: does another parser agree?

    .venv/bin/python experiments/table4/agreement.py runs/wsj reuters.berkeley.mrg.xz

The trees of the file stand in the order of the score per word that their parser gave them, the
highest first. The other parser, runs/wsj, should not have learned from them. For each tenth of the
file, the script prints F1 between the trees of the two parsers, and the mean length of a sentence,
since short sentences are easier.
"""

import argparse
import json
import statistics
from pathlib import Path

from regard.data.treebank import Treebank
from regard.measure.validation import compare_trees
from regard.parsing import load

TENTHS = 10


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("silver", type=Path)
    arguments.add_argument("--sentences", type=int, default=100, help="drawn from each tenth")
    given = arguments.parse_args()
    trees = [tree for tree in Treebank([given.silver]).trees() if tree is not None]
    parser = load(given.run)
    for tenth in range(TENTHS):
        some = trees[tenth * len(trees) // TENTHS : (tenth + 1) * len(trees) // TENTHS]
        some = some[:: max(1, len(some) // given.sentences)][: given.sentences]
        figures = compare_trees(parser.parse(tree.words() for tree in some), some).figures()
        told = {
            "tenth": tenth + 1,
            "f1": round(figures["f"], 1),
            "tags": round(figures["tagging_accuracy"], 1),
            "words": round(statistics.mean(len(tree.words()) for tree in some), 1),
        }
        print(json.dumps(told), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
