"""Run programs side by side and compare them: the part that the benchmarks share.

Each program runs in a process and an environment of its own. They compute in turn (A B C A B C
...), one at a time, so that a machine that slows down slows all of them. The first round warms up
and does not count. The report has the median over the rounds, the least and the greatest value, and
ratios of two programs, which are taken within each round.

A worker is a script that reads one JSON request per line on stdin, {"round": n}, and answers with
one JSON object per line on stdout; see peers/worker.py. `make bench-setup` installs the
environments.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"

BUSY = 0.1
"""If other work keeps more cores busy than this, the line of a round says so."""
TICKS = os.sysconf("SC_CLK_TCK")

KEEP_FREED_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
"""Variables by which glibc's malloc keeps large blocks for the next step, instead of returning
them each time."""


@dataclass(frozen=True)
class Contender:
    """A script to run, and where."""

    name: str
    script: str
    """The script's name in benchmarks/peers."""
    arguments: Sequence[str] = ()
    environment: str = ""
    """A folder of .benchmark; empty is the Python that runs this."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables besides those of all contenders."""

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        if not self.environment:
            return Path(sys.executable)
        return ROOT / ".benchmark" / self.environment / "bin" / "python"


@dataclass
class Result:
    """The description that a contender gave of itself, and its answers in the rounds that count."""

    name: str
    about: dict[str, Any]
    turns: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """Seconds of each round."""
        return [turn["seconds"] for turn in self.turns]

    def per_second(self, quantity: str) -> list[float]:
        """The answer's `quantity` divided by its seconds, for each round."""
        return [turn[quantity] / turn["seconds"] for turn in self.turns]


class Spread(NamedTuple):
    """The median of some measurements, the least and the greatest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """The spread of `values`; raises ValueError if there are none."""
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))

    def text(self, form: str = ",.0f") -> str:
        """For instance 3.21 [3.05, 3.30]."""
        return f"{self.median:{form}} [{self.low:{form}}, {self.high:{form}}]"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Ours divided by theirs, round by round: what changes from round to round cancels out."""
    return Spread.of(a / b for a, b in zip(ours, theirs, strict=True))


class ContenderFailed(Exception):
    """A contender is not installed, or it ended before its answer; the message says which."""


class Worker:
    """A running contender."""

    def __init__(self, contender: Contender, threads: int):
        if not contender.python.exists():
            raise ContenderFailed(
                f"skipped: there is no .benchmark/{contender.environment}; `make bench-setup` "
                "installs it"
            )
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        self._beside = 0  # bytes
        self._process = subprocess.Popen(
            [contender.python, PEERS / contender.script, *contender.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            env=_variables(threads) | dict(contender.variables),
        )
        try:
            self.about = self._answer()
            del self.about["ready"]
        except BaseException:
            self.stop()
            raise

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The contender's answer, and "busy_elsewhere": the cores at other work meanwhile.

        "peak_memory" includes the memory of the contender's child processes. As it is slow to read,
        it is read only in the round that warms up. Raises ContenderFailed if the contender ends.
        """
        begin, used = time.perf_counter(), self._used_by_others()
        with nullcontext() if request.get("round") else self._watched():
            answer = self._answer_to(request)
        busy = (self._used_by_others() - used) / (time.perf_counter() - begin)
        answer["peak_memory"] += self._beside
        return answer | {"busy_elsewhere": round(max(0.0, busy), 2)}

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """During the block, watch the memory that only the contender's child processes hold."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(0.05):
                self._beside = max(self._beside, _held_by_children_of(self._process.pid))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _used_by_others(self) -> float:
        """Processor seconds of all other processes, and those that other virtual machines took."""
        of_all = Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        user, nice, system, _idle, _waiting, *rest = map(int, of_all)
        of_this = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        # Fields 11 to 14: its own time, and the time of its children that have ended.
        return (user + nice + system + sum(rest) - sum(map(int, of_this[11:15]))) / TICKS

    def _answer_to(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # its message on stderr says why
        return self._answer()

    def stop(self) -> None:
        """End the contender; no error if it has ended already."""
        self._process.kill()
        self._process.communicate()
        self._stderr.close()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        status = self._process.wait()
        self._stderr.seek(0)
        last = self._stderr.read().decode(errors="replace").strip().splitlines()[-5:]
        raise ContenderFailed("\n    ".join([f"failed: it ended with status {status}", *last]))


def _held_by_children_of(pid: int) -> int:
    """Bytes that the children of a process hold for themselves; 0 if the system does not tell."""
    held = 0
    with suppress(OSError):  # of a process that has just ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                lines = Path(f"/proc/{child}/smaps_rollup").read_text().splitlines()
                held += 1024 * sum(int(x.split()[1]) for x in lines if x.startswith("Private_"))
    return held


def _variables(threads: int) -> dict[str, str]:
    """Variables of every contender: those of this process, the threads, and a default malloc."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    counts = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    return ours | {name: str(threads) for name in counts}


def compare(
    contenders: Sequence[Contender], rounds: int, threads: int
) -> tuple[dict[str, Result], dict[str, str]]:
    """The results, by name, of contenders that ran to the end, and why the others did not."""
    results: dict[str, Result] = {}
    failures: dict[str, str] = {}
    workers: dict[str, Worker] = {}

    def failed(name: str, why: ContenderFailed) -> None:
        _say(f"{name}: {why}")
        failures[name] = str(why)
        results.pop(name, None)
        workers.pop(name, None)

    with ExitStack() as stack:
        for contender in contenders:
            try:
                worker = Worker(contender, threads)
            except ContenderFailed as why:
                failed(contender.name, why)
                continue
            stack.callback(worker.stop)
            workers[contender.name] = worker
            results[contender.name] = Result(contender.name, worker.about)
        for turn in range(rounds + 1):
            for name, worker in list(workers.items()):
                try:
                    answer = worker.ask({"round": turn})
                except ContenderFailed as why:
                    failed(name, why)
                    continue
                busy = answer["busy_elsewhere"]
                other = f" ({busy} cores busy elsewhere)" if busy > BUSY else ""
                _say(f"round {turn}: {name}: {answer['seconds']:.2f} s{other}")
                if turn > 0:  # the first warms up
                    results[name].turns.append(answer)
    return results, failures


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options --rounds, --threads, --only and --keep."""
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--rounds", type=int, default=5, help="turns that count (default 5)")
    parser.add_argument(
        "--threads", type=int, default=cores, help="of each contender (default: all cores)"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="run only these contenders")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write a JSON record there")


def chosen(contenders: Sequence[Contender], only: Sequence[str] | None) -> list[Contender]:
    """The contenders named by --only; exits, naming all of them, if a name is unknown."""
    names = [contender.name for contender in contenders]
    for name in only or []:
        if name not in names:
            sys.exit(f"there is no contender {name!r}; there are: {', '.join(names)}")
    return [c for c in contenders if not only or c.name in only]


def circumstances(threads: int) -> dict[str, Any]:
    """Date, code, machine and its load; to be called before the contenders start."""
    return {
        "date": date.today().isoformat(),
        "commit": _commit(),
        "machine": {
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "threads": threads,
            "load_average_before": os.getloadavg(),
        },
    }


def keep(record: Mapping[str, Any], folder: Path, benchmark: str) -> Path:
    """Write FOLDER/date-benchmark.json, with the date in the record; returns its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{record['date']}-{benchmark}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: the first column is aligned to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    for row in [header, *rows]:
        first, *others = (
            f"{cell:{'<' if i == 0 else '>'}{width}}"
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join([first, *others]))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"
