"""Speed and memory of `regard prepare`, as a corpus grows.

    .venv/bin/python benchmarks/preparation.py --source train.en.xz --target train.fr.xz \\
        --pairs 200000 2000000 --workers 1 2 --keep benchmarks/results

A corpus of any size is made from the given text. Nine of ten pairs are a given pair in which three
words on each side are replaced by words from elsewhere in the text. On one side in ten, one of
these words is also spelt differently. So sub-words, counts and lengths stay those of real text, and
new words keep occurring. The other pairs are exact copies, except that one pair in two hundred has
an empty side. Duplicates are dropped.

Each measurement is a process of its own. Its memory and that of its workers is read ten times a
second. "MB" is the most that all of them held together (resident memory; pages that they share,
such as libraries, count once for each). "main" and "other" are the most that the main process and
one other process held, a worker or the process that learns the sub-words. With one worker there is
no other process. "Pairs/core s" counts processor time, which other work on the machine ("busy", in
cores) hardly changes.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path

from regard.files.lines import read_lines

sys.path.insert(0, str(Path(__file__).parent))  # also where this is imported
import side_by_side as sides

NEW, EMPTY = 0.9, 0.005
"""Shares of the pairs that are changed, and that have an empty side."""
WORDS = 3
"""The number of words that are replaced on each side of a changed pair."""
LETTERS = "etaoinshrdlucmfw"


def write_corpus(source: Path, target: Path, texts: tuple[Path, Path], pairs: int) -> None:
    """Write `pairs` pairs, made from the text of two files at random, always from seed 1."""
    draw = random.Random(1)
    words: list[list[str]] = [["the"], ["le"]]
    originals = zip(*(cycle(list(read_lines(path))) for path in texts), strict=True)
    with source.open("w", encoding="utf-8") as left, target.open("w", encoding="utf-8") as right:
        for pair, _ in zip(originals, range(pairs), strict=False):
            fate = draw.random()
            lines = list(pair)
            if fate < NEW:
                lines = [changed(line, words[i], draw) for i, line in enumerate(pair)]
            elif fate > 1 - EMPTY:
                lines[0] = ""
            left.write(lines[0] + "\n")
            right.write(lines[1] + "\n")


def changed(line: str, words: list[str], draw: random.Random) -> str:
    """The line with some words replaced from `words`; the replaced ones are added to `words`."""
    parts = line.split(" ")
    for _ in range(WORDS):
        place = int(draw.random() * len(parts))
        taken, parts[place] = parts[place], words[int(draw.random() * len(words))]
        if len(words) < 100_000:
            words.append(taken)
        else:
            words[int(draw.random() * 100_000)] = taken
    if draw.random() < 0.1:
        parts[place] = parts[place][:3] + "".join(draw.choices(LETTERS, k=5))
    return " ".join(parts)


@dataclass
class Measured:
    """One preparation; its memory is the most that was resident, in megabytes."""

    pairs: int
    workers: int
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds of each part."""
    processor: float = 0.0
    """Seconds of processor time, of all processes."""
    together: float = 0.0
    main: float = 0.0
    other: float = 0.0
    """The most that one process other than the main one held."""
    busy: float = 0.0
    """Cores that were busy with other work."""

    def see(self, main: float, others: list[float]) -> None:
        """Take account of one reading of the memory, in megabytes."""
        self.together = max(self.together, main + sum(others))
        self.main = max(self.main, main)
        self.other = max([self.other, *others])

    def per_second(self) -> float:
        return self.pairs / sum(self.seconds.values())


PARTS = ("survey", "sample", "learn", "encode", "rest")
"""Reading to check; reading for a sample; learning from it; reading to encode; checksums."""
PROGRAM = """
import json, sys, time
from pathlib import Path
from regard.data.prepare import prepare_text
from regard.recipe import Recipe

source, target, out, workers = sys.argv[1:]
ends, began = {}, time.monotonic()

def listen(progress):
    now = time.monotonic() - began
    if progress.stage == "encode":
        ends.setdefault("learn", now)
    ends[{"learn": "sample"}.get(progress.stage, progress.stage)] = now

prepare_text([Path(source)], [Path(target)], Path(out), Recipe().but(deduplicate=True),
        workers=int(workers), progress=listen)
ends["rest"] = time.monotonic() - began
print(json.dumps(ends))
"""


def measure(source: Path, target: Path, pairs: int, workers: int) -> Measured:
    measured = Measured(pairs, workers)
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        command = [sys.executable, "-c", PROGRAM, source, target, Path(folder, "out"), str(workers)]
        before, began = processor_seconds(), time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                measured.see(*held(process.pid))
                time.sleep(0.1)
            assert process.stdout
            if process.returncode:
                raise SystemExit(f"preparation ended with status {process.returncode}")
            ends = json.loads(process.stdout.read())
        machine, own = (n - o for n, o in zip(processor_seconds(), before, strict=True))
        measured.processor = round(own, 1)
        measured.busy = round(max(0.0, machine - own) / (time.monotonic() - began), 2)
    last = 0.0
    for part in PARTS:
        measured.seconds[part], last = round(ends[part] - last, 3), ends[part]
    return measured


def processor_seconds() -> tuple[float, float]:
    """Processor seconds used by the whole machine, and by this process with its ended children."""
    ticks = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    machine = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return machine, sum(os.times()[:4])


def held(pid: int) -> tuple[float, list[float]]:
    """Resident megabytes of a process, and of each child; 0.0 and [] if the process has ended."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        return resident(pid), [resident(int(child)) for child in children.read_text().split()]
    except OSError:  # it has just ended
        return 0.0, []


def resident(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--pairs", type=int, nargs="+", default=[200_000, 2_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--folder", type=Path, help="Where the corpora are written; kept there.")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="Leave a JSON record there.")
    return parser.parse_args()


def row(measured: Measured) -> list[str]:
    m, parts = measured, measured.seconds
    return [
        f"{m.pairs:,}",
        f"{m.workers}",
        f"{sum(parts.values()):,.0f}",
        *(f"{parts[part]:.1f}" for part in PARTS),
        f"{m.per_second():,.0f}",
        f"{m.pairs / m.processor:,.0f}",
        *(f"{megabytes:,.0f}" for megabytes in (m.together, m.main, m.other)),
        f"{m.busy}",
    ]


def main() -> None:
    chosen = parsed()
    record = sides.circumstances(max(chosen.workers))
    measured = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = chosen.folder or Path(scratch)
        for pairs in chosen.pairs:
            source, target = folder / f"{pairs}.source", folder / f"{pairs}.target"
            if not target.exists():
                write_corpus(source, target, (chosen.source, chosen.target), pairs)
            for workers in chosen.workers:
                measured += [measure(source, target, pairs, workers)]
                print(*row(measured[-1]), file=sys.stderr, flush=True)
    sides.print_table(
        ["pairs", "workers", "s", *PARTS, "pairs/s", "pairs/core s", "MB", "main", "other", "busy"],
        [row(m) for m in measured],
    )
    if chosen.keep:
        sides.keep(record | {"measured": [asdict(m) for m in measured]}, chosen.keep, "preparation")


if __name__ == "__main__":
    main()
