"""Measure in which layer encoder-decoder attention points at the source word of a target word.

    .venv/bin/python experiments/figures/alignment.py runs/demo train.en train.de test.en

The source word of a target word is the one that occurs in the same pairs of the training text, at
least 20 times, with Dice's coefficient over 0.8. A target word counts if the sentence has its
source word exactly once. The script prints for what share of these words the strongest weight lies
on the source word, with weights averaged over the heads of each layer, and over all heads.
"""

import argparse
import json
import re
from collections import Counter
from itertools import islice
from pathlib import Path

from regard.files.lines import read_lines
from regard.run.model_directory import open_model
from regard.view.look import look_at

LIKELY, OFTEN = 0.8, 20


def words(line: str) -> set[str]:
    return set(re.findall(r"\w+|[^\w\s]", line))


def lexicon(sources: list[str], targets: list[str]) -> dict[str, str]:
    """The source word of each target word that has one."""
    both: Counter[tuple[str, str]] = Counter()
    alone: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    for source, target in zip(map(words, sources), map(words, targets), strict=True):
        alone[0].update(source)
        alone[1].update(target)
        both.update((s, t) for s in source for t in target)
    return {
        t: s
        for (s, t), count in both.items()
        if count >= OFTEN and 2 * count > LIKELY * (alone[0][s] + alone[1][t])
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    for name in ("model", "source", "target", "unseen"):
        arguments.add_argument(name, type=Path)
    arguments.add_argument("--sentences", type=int, default=150)
    given = arguments.parse_args()
    known = lexicon(*(list(read_lines(path)) for path in (given.source, given.target)))
    model = open_model(given.model)
    right: Counter[str] = Counter()
    counted = 0
    for sentence in islice(read_lines(given.unseen), given.sentences):
        found = look_at(model, sentence, by_words=True)
        weights = found.weights["cross"]
        ways = {f"layer {i}": layer.mean(0) for i, layer in enumerate(weights, 1)}
        ways["all layers"] = weights.mean((0, 1))
        for place, word in enumerate(found.written):
            if found.source.count(known.get(word, "")) == 1:
                counted += 1
                for name, rows in ways.items():
                    right[name] += found.source[rows[place].argmax()] == known[word]
    told = {name: round(right[name] / counted, 3) for name in ways}
    print(json.dumps({"words": counted} | told))  # noqa: T201


if __name__ == "__main__":
    main()
