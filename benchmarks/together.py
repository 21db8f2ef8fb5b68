"""The time of a few sentences that are translated in one call, as a server gets them together.

    .venv/bin/python benchmarks/together.py --source test.en --shape small

The model has random weights, and outputs are at most three tokens longer than their sources. For
each number of sentences, prints the median over calls with different sentences. To compare two
versions, run it with each in turn.
"""

import argparse
import statistics
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import torch

import regard
from regard.files.lines import read_lines

sys.path.insert(0, str(Path(__file__).parent))  # also where this is imported
from decoding import random_model
from training import SHAPES

CALLS, SENTENCES = 10, 60
"""For each number of sentences, there are at most so many calls, with about so many sentences."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="text, a sentence a line")
    parser.add_argument("--shape", choices=SHAPES, default="small", help="of the model")
    parser.add_argument("--precision", default="int8")
    parser.add_argument("--sentences", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    lines = list(islice(read_lines(given.source), 1000))
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "model"
        random_model(directory, SHAPES[given.shape].but(max_extra=3), lines)
        translator = regard.load(directory, precision=given.precision, exact=False)
    translator.prepare_few_rows()
    for count in given.sentences:
        seconds = []
        for call in range(1 + max(3, min(CALLS, SENTENCES // count))):
            first = call * count % max(1, len(lines) - count)
            began = time.perf_counter()
            translator.translate(lines[first : first + count])
            seconds.append(time.perf_counter() - began)
        milliseconds = 1000 * statistics.median(seconds[1:])  # the first call warms up
        print(f"{count} sentences: {milliseconds:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
