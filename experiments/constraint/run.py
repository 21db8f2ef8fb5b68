"""A parser's search with its constraint and without: how many outputs are trees, F1, and time.

    .venv/bin/python experiments/constraint/run.py runs/parser $REGARD_DATA/wsj-sample/test.mrg

Without the constraint, the search is that of translation, over the whole vocabulary. The two
searches take turns to parse all sentences, `--rounds` times. Outputs of the two differ in length,
so times are also given per row, where a row is a hypothesis at a step of the search.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.rows import Rows
from regard.data.tree_encoding import as_text
from regard.data.treebank import Treebank
from regard.division import Found
from regard.measure.validation import compare_trees
from regard.parsing import Parser
from regard.precision import open_to_decode
from regard.search import search
from regard.text.tokenizer import EOS
from regard.trees.linearise import IllFormed, delinearise
from regard.trees.tree import Tree

Sentences = Sequence[Sequence[str]]


class Counting:
    """A model that counts the rows, or hypotheses, of all its steps."""

    def __init__(self, model: Any):
        self.model, self.rows, self._lock = model, 0, threading.Lock()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, tokens: Tensor, state: Any) -> Any:
        with self._lock:  # batches are decoded side by side
            self.rows += len(tokens)
        return self.model.step(tokens, state)


def freely(parser: Parser, sentences: Sentences) -> list[Tree | None]:
    """Parse by the search of translation; None for an output that is not a tree over the words."""

    def found(rows: Rows, limits: Tensor, _: list[int]) -> Found:
        return search(parser.model, rows, limits, parser.recipe, by=parser.model.by)

    pieces = parser.tokenizer.encode([as_text(words) for words in sentences])
    best = parser.hypotheses([[*some, EOS] for some in pieces], found)
    names = {i: symbol for symbol, i in parser.tokenizer.symbols.items()}
    trees: list[Tree | None] = []
    for words, (one, *_) in zip(sentences, best, strict=True):
        try:
            trees.append(delinearise([names.get(t, "piece") for t in one.tokens], words))
        except IllFormed:
            trees.append(None)
    return trees


@dataclass
class Way:
    """A way to parse, and what was measured of it."""

    parse: Callable[[Sentences], Sequence[Tree | None]]
    seconds: list[float] = field(default_factory=list)
    trees: Sequence[Tree | None] = ()
    rows: int = 0

    def told(self, gold: Sequence[Tree]) -> dict[str, float]:
        """The figures of this way; F1 is that of the sentences whose output is a tree."""
        pairs = [(tree, g) for tree, g in zip(self.trees, gold, strict=True) if tree is not None]
        seconds = statistics.median(self.seconds)
        f1 = compare_trees(*zip(*pairs, strict=True)).figures()["f"] if pairs else 0.0
        return {
            "trees_percent": round(100 * len(pairs) / len(gold), 2),
            "f1_of_trees": round(f1, 2),
            "seconds": round(seconds, 2),
            "rows": self.rows,
            "microseconds_a_row": round(1e6 * seconds / self.rows, 2),
        }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("gold", type=Path)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    gold = [tree for tree in Treebank([given.gold]).trees() if tree is not None]
    sentences = [tree.words() for tree in gold]
    opened, exact = open_to_decode(given.run, "fp32", None)
    counting: Any = Counting(opened.network)
    parser = Parser(counting, opened.tokenizer, opened.recipe, exact=exact)
    ways = {"constrained": Way(parser.parse), "free": Way(lambda s: freely(parser, s))}
    for _ in range(given.rounds):
        for way in ways.values():
            counting.rows, began = 0, time.perf_counter()
            way.trees = way.parse(sentences)
            way.seconds.append(time.perf_counter() - began)
            way.rows = counting.rows
    about = {"run": given.run.name, "sentences": len(gold), "beam": parser.recipe.beam}
    about |= {"threads": torch.get_num_threads(), "rounds": given.rounds}
    told = {name: way.told(gold) for name, way in ways.items()}
    print(json.dumps(about | told, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
