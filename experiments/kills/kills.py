"""Kill a training run on the built-in corpus hundreds of times, and compare the results.

    PYTHONPATH=tests .venv/bin/python experiments/kills/kills.py

One run is not killed: it gives the hashes that every other run must end with. Any other run is
killed and started again by the same command until it ends by itself; then the next run begins.
"""

import argparse
import hashlib
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import date
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Literal

from regard.corpus import write_corpus
from regard.run.checkpoints import newest
from regard.run.journal import read_journal
from run.killing import PROCESSES, full_at, killed_at, watching

RECIPE = {
    "model.layers": 1, "model.d_model": 16, "model.d_ff": 32, "model.heads": 2,
    "tokenizer.vocabulary": 400,
    "data.held_out": 20, "data.source_tokens": 256, "data.target_tokens": 256,
    "data.row_length": 64, "data.max_length": 64,
    "training.steps": 60, "training.warmup_steps": 20, "training.log_every": 1,
    "training.validate_every": 25, "training.validate_sentences": 2,
    "training.save_every": 3, "training.save_minutes": 0.0,
    "training.keep": 3, "training.average": 3,
}  # fmt: skip
PAIRS = 500
INSTANTS = 70
"""The number of instants (`run.killing`) in the checkpoints' folder during about four saves."""
Outcome = Literal["ended", "stopped", "stopped in a save"]
STOPS: tuple[Outcome, ...] = ("stopped", "stopped in a save")
TIMED = ("time", "seconds", "tokens_per_second")


def command(data: Path, out: Path) -> list[str]:
    settings = [f"--set={key}={value}" for key, value in RECIPE.items()]
    recipe = [*settings, "--threads=1", "--quiet"]
    return ["train", "--recipe=base", *recipe, f"--data={data}", f"--out={out}"]


def train(arguments: list[str], said: Path) -> None:
    """Run the command in this process, which has the libraries; its output goes to `said`."""
    with said.open("wb") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    from regard.cli.main import main

    sys.dont_write_bytecode = True
    sys.argv = ["regard", *arguments]
    main()


def train_with_marks(arguments: list[str], said: Path, marks: Path, n: int, delay: float) -> None:
    """Train until `delay` seconds after the n-th instant in the checkpoints' folder.

    At every instant, a byte is written to `marks`: S if it is in that folder (in a save), else -.
    """
    handle = os.open(marks, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    seen = 0

    def mark(path: Path) -> None:
        nonlocal seen
        saving = "checkpoints" in path.parts
        os.write(handle, b"S" if saving else b"-")
        seen += saving
        if saving and seen == n:
            kill_after(delay)

    with watching(mark):
        train(arguments, said)


def kill_after(delay: float) -> None:
    """Kill this process at once; after a delay, by a child, which may hit a system call."""
    if not delay:
        os.kill(os.getpid(), signal.SIGKILL)
    elif not os.fork():
        time.sleep(delay)
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)


def train_until_full(n: int, arguments: list[str], said: Path) -> None:
    full_at(n, train, arguments, said)


def result(run: Path) -> dict[str, Any]:
    """The hashes of the files, and of the journal without times: no kill may change them."""
    last = run / "checkpoints" / f"step-{RECIPE['training.steps']}"
    files = [
        run / "model.safetensors",
        last / "weights.safetensors",
        last / "optimizer.safetensors",
    ]
    journal = [
        {key: value for key, value in record.items() if key not in TIMED}
        for record in read_journal(run / "journal.jsonl")
        if record["event"] in ("step", "validation")
    ]
    left = [path.name for path in run.rglob(".*") if path.name != ".lock"]
    assert not left, f"something temporary stayed: {left}"
    hashes = {str(path.relative_to(run)): sha256(path.read_bytes()) for path in files}
    return hashes | {"journal": sha256(json.dumps(journal).encode())}


def machine() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Killing:
    """Stops runs in one way until there were `wanted` stops; compares every run that ends."""

    def __init__(self, name: str, wanted: int, expected: dict[str, Any], folder: Path, data: Path):
        self.name, self.wanted, self.expected = name, wanted, expected
        self.folder, self.data = folder / name, data
        self.folder.mkdir()
        self.counts: Counter[Outcome] = Counter()
        self.wrong: list[str] = []

    @property
    def run(self) -> Path:
        return self.folder / f"run-{self.counts['ended'] + 1}"

    @property
    def arguments(self) -> list[str]:
        return command(self.data, self.run)

    @property
    def said(self) -> Path:
        return self.folder / "said"

    @property
    def stops(self) -> int:
        return sum(self.counts[outcome] for outcome in STOPS)

    def repeat(
        self, attempt: Callable[["Killing"], Outcome], wanted: Sequence[Outcome]
    ) -> dict[str, Any]:
        """Attempt until enough outcomes are in `wanted` and the last run has ended; the counts."""
        began = time.monotonic()
        while (missing := sum(self.counts[o] for o in wanted) < self.wanted) or self.run.exists():
            outcome = attempt(self) if missing else self.finish()
            if outcome == "ended":
                self.compare()
            else:
                newest(self.run / "checkpoints", 1, self.wrong.append)  # none may be damaged
            self.counts[outcome] += 1
        return {
            "stops": self.stops,
            "of them inside a save": self.counts["stopped in a save"],
            "runs that ended": self.counts["ended"],
            "wrong": self.wrong,
            "seconds": round(time.monotonic() - began),
        }

    def start(self, target: Callable[..., None], *arguments: Any) -> BaseProcess:
        process = PROCESSES.Process(target=target, args=arguments)
        process.start()
        return process

    def finish(self) -> Outcome:
        process = self.start(train, self.arguments, self.said)
        process.join()
        assert process.exitcode == 0, self.said.read_text()
        return "ended"

    def compare(self) -> None:
        found = result(self.run)
        self.wrong += [
            f"{self.run.name}: {name} is {found[name]}"
            for name, value in self.expected.items()
            if found[name] != value
        ]
        print(f"{self.name}: {self.stops} stops", flush=True)  # noqa: T201


Attempt = Callable[[Killing], Outcome]


def outcome(process: BaseProcess, killing: Killing) -> Outcome:
    """The outcome of a process that writes marks, once it has ended."""
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), killing.said.read_text()
    if process.exitcode == 0:
        return "ended"
    marks = killing.folder / "marks"
    inside = marks.exists() and marks.read_bytes().endswith(b"S")
    return "stopped in a save" if inside else "stopped"


def in_a_save(draw: random.Random) -> Attempt:
    """Kill half of the runs at an instant, and half up to two milliseconds after it."""

    def attempt(killing: Killing) -> Outcome:
        marks = killing.folder / "marks"
        delay = draw.choice([0.0, draw.uniform(0, 0.002)])
        n = draw.randint(1, INSTANTS)
        process = killing.start(train_with_marks, killing.arguments, killing.said, marks, n, delay)
        return outcome(process, killing)

    return attempt


def wait(killing: Killing, draw: random.Random, longest: float, ended: Callable[[], bool]) -> None:
    """Wait up to `longest` seconds; three times in four, first await a line of the journal."""
    journal = killing.run / "journal.jsonl"

    def written() -> int:
        return journal.stat().st_mtime_ns if journal.exists() else 0

    before, awaited = written(), draw.random() < 0.75
    while awaited and written() == before and not ended():
        time.sleep(0.005)
    time.sleep(draw.uniform(0, longest))


def at_a_moment(draw: random.Random, longest: float) -> Attempt:
    def attempt(killing: Killing) -> Outcome:
        marks = killing.folder / "marks"
        marks.unlink(missing_ok=True)
        process = killing.start(train_with_marks, killing.arguments, killing.said, marks, 0, 0.0)
        wait(killing, draw, longest, lambda: not process.is_alive())
        process.kill()
        return outcome(process, killing)

    return attempt


def whole_processes(draw: random.Random, longest: float) -> Attempt:
    """Kill `python -m regard`, started as a user starts it."""

    def attempt(killing: Killing) -> Outcome:
        with (
            killing.said.open("wb") as said,
            subprocess.Popen(
                [sys.executable, "-m", "regard", *killing.arguments],
                stdout=said, stderr=said, env=os.environ | {"OMP_NUM_THREADS": "1"},
            ) as process,
        ):  # fmt: skip
            wait(killing, draw, longest, lambda: process.poll() is not None)
            process.kill()
        assert process.returncode in (0, -signal.SIGKILL), killing.said.read_text()
        return "stopped" if process.returncode else "ended"

    return attempt


def by_a_power_cut(draw: random.Random) -> Attempt:
    """Kill as a power cut does: a new file that was not synced loses its second half."""

    def attempt(killing: Killing) -> Outcome:
        n, arguments = draw.randint(1, 2 * INSTANTS), (killing.arguments, killing.said)
        killed = killed_at(n, killing.folder, train, *arguments)
        return "stopped" if killed else "ended"

    return attempt


def by_a_full_disk(draw: random.Random) -> Attempt:
    """Fill the disk: the run ends with one sentence or, if only a removal failed, goes on."""

    def attempt(killing: Killing) -> Outcome:
        n = draw.randint(1, 2 * INSTANTS)
        process = killing.start(train_until_full, n, killing.arguments, killing.said)
        process.join()
        if process.exitcode == 0:
            return killing.finish()  # the next start clears away what could not be removed
        [sentence] = killing.said.read_text().splitlines()
        assert process.exitcode == 2 and sentence.startswith("regard: "), sentence
        assert "No space left on device" in sentence, sentence
        return "stopped"

    return attempt


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    given = parser.parse_args()
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_corpus(folder / "text", 1, PAIRS)
        data = ["prepare", "--recipe=base", *(f"--set={k}={v}" for k, v in RECIPE.items())]
        data += [f"--source={folder / 'text.en'}", f"--target={folder / 'text.de'}"]
        subprocess.run(
            [sys.executable, "-m", "regard", *data, f"--out={folder / 'data'}"], check=True
        )

        def killing(name: str, share: float) -> Killing:
            return Killing(name, int(share * given.kills), expected, folder, folder / "data")

        expected: dict[str, Any] = {}
        undisturbed = killing("undisturbed", 0)
        undisturbed.finish()  # the first start in a fork server waits for it
        expected = result(undisturbed.run)
        undisturbed.counts["ended"], began = 1, time.monotonic()
        undisturbed.finish()
        seconds = time.monotonic() - began
        told = {
            "date": str(date.today()),
            "machine": machine(),
            "seed": given.seed,
            "recipe": RECIPE,
            "expected": expected,
            "seconds undisturbed": round(seconds, 2),
        }
        ways: dict[str, tuple[float, Attempt, Sequence[Outcome]]] = {
            "inside saves": (1 / 2, in_a_save(draw), ["stopped in a save"]),
            "at any moment": (1 / 2, at_a_moment(draw, seconds / 2), STOPS),
            "whole processes": (1 / 15, whole_processes(draw, seconds / 2), STOPS),
            "power cuts": (1 / 3, by_a_power_cut(draw), STOPS),
            "full disk": (1 / 5, by_a_full_disk(draw), STOPS),
        }
        for name, (share, attempt, wanted) in ways.items():
            told[name] = killing(name, share).repeat(attempt, wanted)
        given.out.write_text(json.dumps(told, indent=1) + "\n")
        print(json.dumps(told, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
