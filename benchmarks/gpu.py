"""Check regard on one GPU and measure it: each task once, the most important first.

    make gpu                                      # all that this GPU's record does not have yet
    python benchmarks/gpu.py --budget 540         # start nothing after nine minutes
    python benchmarks/gpu.py "base, flex" --again # one task, even if the record has it

Correctness and learning come first, then speed. Each task is a process of its own with a time
limit, so one that hangs or crashes stops no other. Checks run side by side, and so do processes
that compile the programs of later tasks into PyTorch's cache; whatever is timed runs alone. The
record, gpu-<name>.json in results or in the folder of --out, is written after each task, so the
same command continues after an interruption; tasks that failed or ran out of time are tried again,
and gpu-errors.txt beside the record keeps what they wrote. The exit status is 1 if a task failed or
found something wrong.

The text of the speed tasks consists of random ids, in sentences as long as those of real text, 27
tokens on average. All training has batches of 25,000 + 25,000 tokens: regard on packed rows, and
torch.nn.Transformer under bf16 autocast on padded batches grouped by length. Tokens of source and
target are counted together, without padding. "learning" trains on --data, a folder that `regard
prepare` made of Multi30k, and is left out without it.

It needs Python 3.11 or newer and a PyTorch (2.11 to 2.13) that finds the GPU. The few other
packages may be in a folder of their own (--packages), as `make gpu` installs them. `--smoke` runs
tiny sizes on any machine to show that the tasks work; it compiles nothing and keeps nothing.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LEAST = 20.0
"""No task is started if fewer seconds of the budget are left."""


class Task(NamedTuple):
    """A task of gpu_tasks.py.

    `seconds` is its time limit. A task that is not `timed` may run beside others. A task that is
    `prepared` compiles a large program, which another process may compile before.
    """

    name: str
    seconds: float
    timed: bool = True
    prepared: bool = False


class Work(NamedTuple):
    """A process to run: a task, or the compiling that prepares it."""

    task: Task
    prepare: bool = False


KERNELS = ("flex", "efficient", "cudnn")
TASKS = [
    Task("machine", 60),
    Task("equations", 120, timed=False),
    Task("search", 120, timed=False),
    *(Task(f"compiled, {kernel}", 240, timed=False) for kernel in KERNELS),
    Task("dropout", 180, timed=False),
    Task("deterministic", 180, timed=False),
    Task("memory", 180, timed=False),
    Task("learning", 240, timed=False),
    *(Task(f"base, {kernel}", 150, prepared=True) for kernel in KERNELS),
    Task("base, rows of 128", 150, prepared=True),
    Task("decoding, 1,000", 60),
    Task("decoding, 3,003", 90),
    *(Task(f"big, {kernel}", 200, prepared=True) for kernel in KERNELS),
    Task("base, not compiled", 60),
    Task("torch.nn.Transformer", 300),
    Task("torch.nn.Transformer without cuDNN", 120),
    Task("torch.nn.Transformer without cuDNN, compiled", 300),
    Task("pipeline", 200),
    Task("attention", 120),
    Task("decoding, fp32", 90),
]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [task.name for task in TASKS]
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of: {'; '.join(names)}")
    parser.add_argument("--again", action="store_true", help="also what the record has")
    parser.add_argument("--budget", type=float, default=3600, help="seconds for all; %(default)s")
    parser.add_argument(
        "--at-once", type=int, default=min(12, os.cpu_count() or 1), metavar="N",
        help="processes that may share the GPU, if nothing is timed (%(default)s); fewer need less "
        "of its memory: compiling the paper's models takes 10 to 20 GB each",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the record")
    parser.add_argument("--data", type=Path, help="prepared data for the task 'learning'")
    parser.add_argument("--packages", type=Path, help="folder of packages that Python lacks")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on whatever is here")
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(names):
        parser.error(f"there is no task {unknown.pop()!r}; there are: {'; '.join(names)}")
    sys.exit(run_all(args))


def run_all(args: argparse.Namespace) -> int:
    """Run the tasks that are due; returns the exit status."""
    until = time.monotonic() + args.budget
    name = "smoke" if args.smoke else gpu_name()
    path = args.out / f"gpu-{re.sub('[^a-z0-9]+', '-', name.lower())}.json"
    record = json.loads(path.read_text()) if path.exists() else {"device": name, "tasks": {}}
    asked = [task for task in TASKS if not args.tasks or task.name in args.tasks]
    due = [task for task in asked if is_due(task, record["tasks"].get(task.name), path, args)]
    shared = [Work(task) for task in due if not task.timed]
    if len(due) > 1 and not args.smoke:
        shared += [Work(task, prepare=True) for task in due if task.prepared]
    alone = [[Work(task)] for task in due if task.timed]
    first = [group for group in alone if group[0].task.name == "machine"]
    for group in (*first, shared, *alone[len(first) :]):
        for work, found in run_together(group, until, args):
            if not work.prepare:
                record["tasks"][work.task.name] = found
                print(f"{work.task.name}: {in_words(found)}", flush=True)
                if not args.smoke:
                    write(path, record)
    if time.monotonic() > until - LEAST:
        print(f"the budget of {args.budget:g} s is used up: the same command continues")
    done = [record["tasks"].get(task.name, {}) for task in asked]
    return int(any("failed" in found or found.get("passes") is False for found in done))


def is_due(task: Task, before: Any, path: Path, args: argparse.Namespace) -> bool:
    """Whether to run a task for which the record at `path` has `before`; says why not."""
    if before and "failed" not in before and not args.again:
        print(f"{task.name}: is in {path}; --again runs it again")
        return False
    if task.name == "learning" and args.data is None:
        print("learning: left out: give --data, a folder that `regard prepare` made")
        return False
    return True


def run_together(
    group: list[Work], until: float, args: argparse.Namespace
) -> Iterator[tuple[Work, dict[str, Any]]]:
    """Run processes side by side, as long as the budget lasts; give the figures of each."""
    running: set[subprocess.Popen[bytes]] = set()

    def one(work: Work) -> dict[str, Any] | None:
        left = until - time.monotonic()
        return run(work, min(work.task.seconds, left), args, running) if left >= LEAST else None

    with ThreadPoolExecutor(args.at_once) as pool:
        waiting = {pool.submit(one, work): work for work in group}
        try:
            for future in as_completed(waiting):
                if (found := future.result()) is not None:
                    yield waiting[future], found
        finally:  # after an interruption, end what still runs
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running:
                end(process)


def gpu_name() -> str:
    """The GPU's name; ends the program where there is none."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if not (name := done.stdout.strip()):
        sys.exit("this measures a GPU, and PyTorch finds none here; training.py measures a CPU")
    return name


def run(
    work: Work, seconds: float, args: argparse.Namespace, running: set[subprocess.Popen[bytes]]
) -> dict[str, Any]:
    """The figures of a task, with its seconds; or, under "failed", why it failed.

    While its process runs, it is in `running`.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [
            sys.executable,
            str(HERE / "gpu_tasks.py"),
            work.task.name,
            "--answer",
            str(answer),
        ]
        for option, value in (("--data", args.data), ("--packages", args.packages)):
            command += [option, str(value.resolve())] if value else []
        command += ["--smoke"] * args.smoke + ["--prepare"] * work.prepare
        environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
        if not work.task.timed or work.prepare:  # it shares the cores with other processes
            environment["TORCHINDUCTOR_COMPILE_THREADS"] = "4"
        # A session of its own, so that processes that the task started can be ended with it.
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
        running.add(process)
        try:
            _, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            end(process)
            process.communicate()
            return {"failed": f"took more than {seconds:.0f} s"}
        finally:
            running.discard(process)
        if process.returncode or not answer.exists():
            text = error.decode(errors="replace").strip() or "no message"
            keep_error(args, work.task.name, text)
            return {"failed": f"status {process.returncode}: {text.splitlines()[-1][:300]}"}
        found: dict[str, Any] = json.loads(answer.read_text())
    return {**found, "seconds": round(time.monotonic() - begin, 1)}


def keep_error(args: argparse.Namespace, name: str, text: str) -> None:
    """Append what a failed process wrote to gpu-errors.txt, beside the record."""
    if not args.smoke:
        args.out.mkdir(parents=True, exist_ok=True)
        with (args.out / "gpu-errors.txt").open("a", encoding="utf-8") as file:
            file.write(f"== {name} ==\n{text}\n\n")


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def write(path: Path, record: dict[str, Any]) -> None:
    """Write the record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def in_words(found: dict[str, Any]) -> str:
    """One line for a task: its verdict, and its figures without their details."""
    if "failed" in found:
        return f"FAILED: {found['failed']}"
    verdict = {True: "passes; ", False: "DOES NOT PASS; "}.get(found.get("passes"), "")  # type: ignore[call-overload]
    figures = [f"{key} {value:,.4g}" for key, value in found.items() if is_number(value)]
    return verdict + ", ".join(figures)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


if __name__ == "__main__":
    main()
