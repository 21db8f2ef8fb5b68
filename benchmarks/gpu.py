"""Check regard on one GPU and measure it: each task once, the most important first.

    make gpu                                      # all that this GPU's record does not have yet
    python benchmarks/gpu.py --budget 540         # start nothing after nine minutes
    python benchmarks/gpu.py "base, flex" --again # one task, even if the record has it

Correctness and learning come first, then speed. Each task is a process of its own with a time
limit, so one that hangs or crashes stops no other. Checks run side by side; meanwhile, tasks that
need a large program compile it and wait, as many as fit the GPU's memory. What is timed runs alone.
The record, gpu-<name>.json in results or in the folder of --out, is written after each task, so the
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
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LEAST = 10.0
"""No task is started if fewer seconds of the budget are left."""
PROGRAM = 20 * 10**9
"""The most bytes of the GPU's memory that a task with a compiled program takes."""
Found = dict[str, Any]
"""The figures of a task by name."""


class Task(NamedTuple):
    """A task of gpu_tasks.py.

    `seconds` is its time limit. A task that is not `timed` may run beside others. A task that is
    `prepared` compiles a large program beside others, and waits before it is timed.
    """

    name: str
    seconds: float
    timed: bool = True
    prepared: bool = False


class Child:
    """The process that does a task. Close the object to end the process."""

    def __init__(self, task: Task, args: argparse.Namespace):
        self.task, self._args = task, args
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: Found | None = None
        self._folder = Path(tempfile.mkdtemp())

    def prepare(self, until: float) -> None:
        """Start the process; return when it has compiled its program or has ended, or at `until`.

        If compiling takes longer than the task may, the process is ended, and the task has failed.
        """
        limit = time.monotonic() + self.task.seconds
        if until - time.monotonic() < LEAST:
            return
        self._start()
        if not self._wait(min(until, limit), for_file="ready") and limit < until:
            self._failure = self._too_slow(self.task.seconds)

    def finish(self, until: float) -> Found | None:
        """The figures of the task, with its seconds; or, under "failed", why it failed.

        None if too little time is left until `until`.
        """
        begin = time.monotonic()
        limit = min(self.task.seconds, until - begin)
        if self._failure or limit < LEAST:
            return self._failure
        try:
            return self._finished(begin, limit)
        finally:
            self.close()

    def close(self) -> None:
        """Kill the process and all that it started; remove its files."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _finished(self, begin: float, limit: float) -> Found:
        process = self._start()
        (self._folder / "go").touch()
        if not self._wait(begin + limit):
            return self._too_slow(limit)
        answer = self._folder / "answer"
        if process.returncode or not answer.exists():
            text = self._keep_error() or "no message"
            return {"failed": f"status {process.returncode}: {text.splitlines()[-1][:300]}"}
        found: Found = json.loads(answer.read_text())
        return {**found, "seconds": round(time.monotonic() - begin, 1)}

    def _too_slow(self, seconds: float) -> Found:
        self._keep_error()
        self.close()
        return {"failed": f"took more than {seconds:.0f} s"}

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            args, folder = self._args, self._folder
            command = [sys.executable, str(HERE / "gpu_tasks.py"), self.task.name]
            command += ["--folder", str(folder)] + ["--smoke"] * args.smoke
            for option, value in (("--data", args.data), ("--packages", args.packages)):
                command += [option, str(value.resolve())] if value else []
            environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
            if args.at_once > 1 and (self.task.prepared or not self.task.timed):
                few = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "4"}
                environment |= few  # the processes share the cores
            with (folder / "error").open("wb") as error:
                # A session of its own, so that processes that it starts can be ended with it.
                self._process = subprocess.Popen(
                    command, stderr=error, env=environment, start_new_session=True
                )
        return self._process

    def _wait(self, until: float, for_file: str = "") -> bool:
        """Wait until the process ends or, if named, makes a file; False if the time is over."""
        process = self._start()
        while process.poll() is None and not (for_file and (self._folder / for_file).exists()):
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
        return True

    def _keep_error(self) -> str:
        """What the process wrote to standard error; it is also appended to gpu-errors.txt."""
        text = (self._folder / "error").read_text(errors="replace").strip()
        if not self._args.smoke:
            self._args.out.mkdir(parents=True, exist_ok=True)
            with (self._args.out / "gpu-errors.txt").open("a", encoding="utf-8") as file:
                file.write(f"== {self.task.name} ==\n{text}\n\n")
        return text


Job = tuple[Child, Callable[[float], Found | None]]
"""A task's process, and its method `prepare` or `finish`."""
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
    Task("decoding, 3,003, three streams", 90),
    Task("decoding, 3,003, one stream", 90),
    *(Task(f"big, {kernel}", 200, prepared=True) for kernel in KERNELS),
    Task("decoding, 20,000", 120),
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
        "--at-once", type=int, default=min(16, os.cpu_count() or 1), metavar="N",
        help="processes that may compute at the same time while nothing is timed (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the record")
    parser.add_argument("--data", type=Path, help="prepared data for the task 'learning'")
    parser.add_argument("--packages", type=Path, help="folder of packages that Python lacks")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on whatever is here")
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(names):
        parser.error(f"there is no task {unknown.pop()!r}; there are: {'; '.join(names)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # end the tasks, too
    sys.exit(run_all(args))


def run_all(args: argparse.Namespace) -> int:
    """Run the tasks that are due; returns the exit status."""
    until = time.monotonic() + args.budget
    name, memory = ("smoke", 0) if args.smoke else gpu()
    path = args.out / f"gpu-{re.sub('[^a-z0-9]+', '-', name.lower())}.json"
    record = json.loads(path.read_text()) if path.exists() else {"device": name, "tasks": {}}
    asked = [task for task in TASKS if not args.tasks or task.name in args.tasks]
    due = [task for task in asked if is_due(task, record["tasks"].get(task.name), path, args)]
    with ExitStack() as stack:
        children = [stack.enter_context(closing(Child(task, args))) for task in due]
        for jobs in groups(children, memory // PROGRAM):
            for child, found in run_together(jobs, until, args.at_once):
                record["tasks"][child.task.name] = found
                print(f"{child.task.name}: {in_words(found)}", flush=True)
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


def groups(children: list[Child], programs: int) -> Iterator[list[Job]]:
    """The jobs that may run together: the machine; all that is not timed; one task at a time.

    At most `programs` tasks are prepared beside those that are not timed.
    """
    machine = [child for child in children if child.task.name == "machine"]
    timed = [child for child in children if child.task.timed and child not in machine]
    checks: list[Job] = [(child, child.finish) for child in children if not child.task.timed]
    prepared = [child for child in timed if child.task.prepared][:programs]
    yield [(child, child.finish) for child in machine]
    yield [*checks, *((child, child.prepare) for child in prepared)]
    yield from ([(child, child.finish)] for child in timed)


def run_together(jobs: list[Job], until: float, at_once: int) -> Iterator[tuple[Child, Found]]:
    """Do jobs side by side; yield the figures of each task that has finished."""
    with ThreadPoolExecutor(at_once) as pool:
        working = {pool.submit(work, until): child for child, work in jobs}
        try:
            for future in as_completed(working):
                if (found := future.result()) is not None:
                    yield working[future], found
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in working.values():
                child.close()
            raise


def gpu() -> tuple[str, int]:
    """The GPU's name, and its memory in bytes; ends the program where there is none."""
    code = """import torch
if torch.cuda.is_available():
    print(torch.cuda.get_device_name(), torch.cuda.mem_get_info()[1], sep="\\n")"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if not (found := done.stdout.split("\n"))[0]:
        sys.exit("this measures a GPU, and PyTorch finds none here; training.py measures a CPU")
    return found[0], int(found[1])


def write(path: Path, record: Found) -> None:
    """Write the record, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    new.replace(path)


def in_words(found: Found) -> str:
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
