"""Check regard on one GPU and measure it: each task once, the most important first.

    make gpu                                      # all that this GPU's record does not have yet
    python benchmarks/gpu.py --budget 540         # start nothing after nine minutes
    python benchmarks/gpu.py "base, flex" --again # one task, even if the record has it

Correctness comes first, then learning, then speed. Each task is a process of its own with a time
limit, so one that hangs or crashes stops no other. The record, gpu-<name>.json in results or in the
folder of --out, is written after each task, so the same command continues after an interruption;
tasks that failed or ran out of time are tried again. The exit status is 1 if a task failed or found
something wrong.

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
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
LEAST = 20.0
"""No task is started if fewer seconds of the budget are left."""


class Task(NamedTuple):
    """A task of gpu_tasks.py, and the seconds that it may take."""

    name: str
    seconds: float


TASKS = [
    Task("machine", 60),
    Task("equations", 60),
    Task("search", 60),
    *(Task(f"compiled, {kernel}", 150) for kernel in ("flex", "efficient", "cudnn")),
    Task("dropout", 120),
    Task("deterministic", 60),
    Task("learning", 240),
    *(Task(f"base, {kernel}", 150) for kernel in ("flex", "efficient", "cudnn")),
    Task("base, rows of 128", 150),
    Task("decoding, 1,000", 60),
    Task("decoding, 3,003", 90),
    *(Task(f"big, {kernel}", 200) for kernel in ("flex", "efficient", "cudnn")),
    Task("memory", 120),
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
    for task in asked:
        before = record["tasks"].get(task.name)
        if before and "failed" not in before and not args.again:
            print(f"{task.name}: is in {path}; --again runs it again")
            continue
        if task.name == "learning" and args.data is None:
            print("learning: left out: give --data, a folder that `regard prepare` made")
            continue
        left = until - time.monotonic()
        if left < LEAST:
            print(f"the budget of {args.budget:g} s is used up: the same command continues")
            break
        found = run(task, min(task.seconds, left), args)
        record["tasks"][task.name] = found
        print(f"{task.name}: {in_words(found)}", flush=True)
        if not args.smoke:
            write(path, record)
    done = [record["tasks"].get(task.name, {}) for task in asked]
    return int(any("failed" in found or found.get("passes") is False for found in done))


def gpu_name() -> str:
    """The GPU's name; ends the program where there is none."""
    code = "import torch; print(torch.cuda.get_device_name() if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if not (name := done.stdout.strip()):
        sys.exit("this measures a GPU, and PyTorch finds none here; training.py measures a CPU")
    return name


def run(task: Task, seconds: float, args: argparse.Namespace) -> dict[str, Any]:
    """The figures of a task, with its seconds; or, under "failed", why it failed."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, str(HERE / "gpu_tasks.py"), task.name, "--answer", str(answer)]
        for option, value in (("--data", args.data), ("--packages", args.packages)):
            command += [option, str(value.resolve())] if value else []
        command += ["--smoke"] * args.smoke
        environment = os.environ | {"PYTHONPATH": str(HERE.parent / "src")}
        # A session of its own, so that processes that the task started can be ended with it.
        process = subprocess.Popen(
            command, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
        try:
            _, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"failed": f"took more than {seconds:.0f} s"}
        if process.returncode or not answer.exists():
            lines = error.decode(errors="replace").strip().splitlines() or ["no message"]
            return {"failed": f"status {process.returncode}: {lines[-1][:300]}"}
        found: dict[str, Any] = json.loads(answer.read_text())
    return {**found, "seconds": round(time.monotonic() - begin, 1)}


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
