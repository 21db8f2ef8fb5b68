"""Check whether a sentence's translations and scores depend on the sentences in its batch.

    python experiments/exact/run.py MODEL FILE... [--sentences 2000] [--precision fp32 bf16 int8]

Each file gives an equal share of the sentences. They are translated one by one, with one thread;
then with all threads, in batches of 7 and of 64 (so many lines are read and decoded together) and
in a random order. All translations of the beam are compared: their texts, and the bits of their
scores. Prints JSON; the exit status is 1 if a text or a score differed in spite of `exact`.
"""

import argparse
import json
import platform
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from regard.files.lines import read_lines
from regard.translation import Translation, Translator, load

Best = list[Translation]


def chosen(files: Sequence[Path], count: int) -> list[str]:
    sentences = []
    for file in files:
        some = [line for line in read_lines(file) if line.strip()]
        sentences += random.Random(1).sample(some, count // len(files))
    return sentences


def translated(
    some: Translator, sentences: Sequence[str], window: int, shuffle: int | None
) -> list[Best]:
    """The translations in the order of the sentences, even if those are given in another order."""
    order = list(range(len(sentences)))
    if shuffle is not None:
        random.Random(shuffle).shuffle(order)
    given = [sentences[i] for i in order]
    found = some.stream(given, n_best=some.recipe.beam, window=window, split=True)
    return [best for _, best in sorted(zip(order, found, strict=True), key=lambda pair: pair[0])]


def differences(found: Sequence[Best], expected: Sequence[Best]) -> dict[str, int]:
    pairs = list(zip(found, expected, strict=True))
    return {
        "texts": sum([t.text for t in a] != [t.text for t in b] for a, b in pairs),
        "scores": sum([t.score.hex() for t in a] != [t.score.hex() for t in b] for a, b in pairs),
    }


def compare(
    model: Path, precision: str, exact: bool, sentences: Sequence[str], extra: int
) -> dict[str, Any]:
    some, threads = load(model, precision=precision, exact=exact), torch.get_num_threads()
    some.recipe = some.recipe.but(max_extra=extra)
    ways: dict[str, tuple[int, int | None]] = {  # lines together, order
        "batches of 7": (7, None),
        "batches of 64": (64, None),
        "batches of 64, random order": (64, 1),
    }
    torch.set_num_threads(1)
    alone = translated(some, sentences, 1, None)
    torch.set_num_threads(threads)
    record: dict[str, Any] = {}
    for name, way in ways.items():
        record[name] = differences(translated(some, sentences, *way), alone)
        sys.stderr.write(f"{precision}, exact {exact}, {name}: {record[name]}\n")
    return record | {"kernels agree": not some.one_by_one}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--sentences", type=int, default=2000)
    parser.add_argument("--precision", nargs="+", default=["fp32", "bf16", "int8"])
    parser.add_argument("--max-extra", type=int, default=50, help="tokens beyond the source's")
    parser.add_argument("--contrast", action="store_true", help="also without being exact")
    args = parser.parse_args()
    sentences = chosen(args.files, args.sentences)
    record: dict[str, Any] = {
        "model": args.model.name,
        "files": [file.name for file in args.files],
        "sentences": len(sentences),
        "torch": torch.__version__,
        "processor": platform.processor() or platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }
    for exact in (True, False) if args.contrast else (True,):
        record["exact" if exact else "not exact"] = {
            precision: compare(args.model, precision, exact, sentences, args.max_extra)
            for precision in args.precision
        }
    sys.stdout.write(json.dumps(record, indent=2) + "\n")
    ways = [way for one in record["exact"].values() for way in one.values() if type(way) is dict]
    sys.exit(any(way["texts"] or way["scores"] for way in ways))


if __name__ == "__main__":
    main()
