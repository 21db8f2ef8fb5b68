"""The GPU's tasks without a GPU: the driver says so, keeps its record, and `--smoke` runs tasks."""

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import torch

from run.copying import prepared
from run.killing import in_fork

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


@pytest.fixture
def gpu() -> Any:
    sys.path.append(str(SCRIPT.parent))
    import gpu

    return gpu


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_sentence() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "this measures a GPU, and PyTorch finds none here; training.py measures a CPU\n"
    )


def test_a_task_is_a_process_and_nothing_is_kept() -> None:
    before = sorted(SCRIPT.parent.glob("results/gpu-*"))
    done = run("--smoke", "dropout", "learning")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "learning: left out: give --data, a folder that `regard prepare` made"
    assert second.startswith("dropout: passes; spread ")
    assert sorted(SCRIPT.parent.glob("results/gpu-*")) == before


def options(out: Path, **changes: Any) -> argparse.Namespace:
    given = {"tasks": [], "again": False, "budget": 1000.0, "at_once": 1, "out": out, "data": None}
    return argparse.Namespace(**given | {"packages": None, "smoke": False} | changes)


def pretend(
    gpu: Any,
    monkeypatch: pytest.MonkeyPatch,
    finish: Callable[[Any, float], Any],
    prepare: Callable[[Any, float], None] = lambda child, until: None,
) -> None:
    """Let there be a GPU, and let these functions be all that a task's process does."""
    monkeypatch.setattr(gpu, "gpu", lambda: ("NVIDIA H100", 10**11))
    monkeypatch.setattr(gpu.Child, "finish", finish)
    monkeypatch.setattr(gpu.Child, "prepare", prepare)


def test_the_record_is_written_after_each_task_and_the_same_command_continues(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ran = tmp_path / "gpu-nvidia-h100.json", []
    some = options(tmp_path, tasks=["machine", "equations", "search"])

    def interrupted(child: Any, until: float) -> dict[str, Any]:
        ran.append(child.task.name)
        if ran[-1] == "search":
            while "equations" not in json.loads(path.read_text())["tasks"]:
                time.sleep(0.01)
            raise KeyboardInterrupt
        return {"failed": "status 1: no"} if ran[-1] == "equations" else {"ms": 1.0}

    pretend(gpu, monkeypatch, interrupted)
    with pytest.raises(KeyboardInterrupt):
        gpu.run_all(some)
    assert ran == ["machine", "equations", "search"]
    assert [*json.loads(path.read_text())["tasks"]] == ["machine", "equations"]
    ran.clear()
    pretend(gpu, monkeypatch, lambda child, _: ran.append(child.task.name) or {"passes": True})
    assert gpu.run_all(some) == 0
    assert ran == ["equations", "search"]  # what failed, and what was not done
    assert gpu.run_all(options(tmp_path, tasks=["machine"], again=True)) == 0
    assert ran[2:] == ["machine"]
    assert "machine: is in " in capsys.readouterr().out


@pytest.mark.parametrize("found", [{"failed": "took more than 9 s"}, {"passes": False, "x": 1.0}])
def test_a_task_that_fails_sets_the_status(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]
) -> None:
    pretend(gpu, monkeypatch, lambda *_: found)
    assert gpu.run_all(options(tmp_path, tasks=["machine"])) == 1


def test_a_used_up_budget_starts_nothing_and_fails_nothing(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "gpu", lambda: ("NVIDIA H100", 10**11))
    assert gpu.run_all(options(tmp_path, budget=gpu.LEAST / 2)) == 0
    assert not [*tmp_path.iterdir()]
    assert "the budget of 5 s is used up" in capsys.readouterr().out


def test_what_is_timed_runs_alone_after_checks_and_compiling(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["machine", "search", "dropout", "base, flex", "decoding, 1,000"]
    met, done = threading.Barrier(3), []

    def finish(child: Any, _: float) -> dict[str, Any]:
        if not child.task.timed:
            met.wait(timeout=20)  # until three processes run at the same time
        done.append(f"finish {child.task.name}")
        return {"ms": 1.0}

    def prepare(child: Any, _: float) -> None:
        met.wait(timeout=20)
        done.append(f"prepare {child.task.name}")

    pretend(gpu, monkeypatch, finish, prepare)
    gpu.run_all(options(tmp_path, tasks=names, at_once=3))
    assert done[0] == "finish machine"
    assert sorted(done[1:4]) == ["finish dropout", "finish search", "prepare base, flex"]
    assert done[4:] == ["finish base, flex", "finish decoding, 1,000"]
    done.clear()
    monkeypatch.setattr(gpu, "gpu", lambda: ("NVIDIA H100", gpu.PROGRAM - 1))  # no room to prepare
    gpu.run_all(options(tmp_path, tasks=[names[0], *names[3:]], again=True))
    assert done == ["finish machine", "finish base, flex", "finish decoding, 1,000"]


@pytest.fixture
def child(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Any]]:
    """A function that makes the process of a task, which does what a script says."""
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    with ExitStack() as stack:

        def made(script: str, seconds: float = 20) -> Any:
            lines = "import pathlib, sys, time", "folder = pathlib.Path(sys.argv[3])", script
            (tmp_path / "gpu_tasks.py").write_text("\n".join(lines))
            task = gpu.Task("machine", seconds, prepared=True)
            return stack.enter_context(closing(gpu.Child(task, options(tmp_path / "out"))))

        yield made


def test_a_task_that_hangs_or_crashes_is_ended_and_named(
    child: Callable[..., Any], gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "LEAST", 0.0)
    until = time.monotonic() + 60
    assert child("time.sleep(60)", 0.5).finish(until) == {"failed": "took more than 0 s"}
    crashed = child("raise SystemExit('no GPU\\nit fell off the bus')")
    assert crashed.finish(until) == {"failed": "status 1: it fell off the bus"}
    kept = (tmp_path / "out" / "gpu-errors.txt").read_text()
    assert kept.endswith("== machine ==\nno GPU\nit fell off the bus\n\n")


def test_a_prepared_task_waits_for_its_turn(child: Callable[..., Any], tmp_path: Path) -> None:
    script = """
(folder / "ready").touch()
while not (folder / "go").exists():
    time.sleep(0.01)
(folder / "answer").write_text('{"ms": 7}')"""
    until, waiting = time.monotonic() + 60, child(script)
    waiting.prepare(until)
    assert waiting._process.poll() is None
    found = waiting.finish(until)
    assert found["ms"] == 7
    assert found["seconds"] < 20
    assert not waiting._folder.exists()


def test_a_program_that_compiles_for_too_long_is_a_failure(child: Callable[..., Any]) -> None:
    until, slow = time.monotonic() + 60, child("time.sleep(600)", 0.5)
    slow.prepare(until)
    assert slow.finish(until) == {"failed": "took more than 0 s"}
    crashed = child("raise SystemExit('no compiler')")
    crashed.prepare(until)
    assert crashed.finish(until) == {"failed": "status 1: no compiler"}


def test_closing_ends_all_processes(child: Callable[..., Any]) -> None:
    waiting = child("""
import subprocess
sleeping = subprocess.Popen(["sleep", "600"])
(folder / "process").write_text(str(sleeping.pid))
(folder / "ready").touch()
time.sleep(600)""")
    waiting.prepare(time.monotonic() + 60)
    process, folder = waiting._process, waiting._folder
    started = int((folder / "process").read_text())
    waiting.close()
    assert process.poll() == -signal.SIGKILL
    assert not folder.exists()
    assert not alive(started)


def alive(process: int) -> bool:
    """Whether a process still runs, a few seconds after it was killed at the latest."""
    for _ in range(100):
        try:
            if Path(f"/proc/{process}/stat").read_text().split()[2] == "Z":
                return False
        except FileNotFoundError:
            return False
        time.sleep(0.1)
    return True


def test_a_task_that_waits_for_its_turn_ends_with_the_program_that_started_it(
    tmp_path: Path,
) -> None:
    code = f"""
import pathlib, subprocess, sys, time
folder = {str(tmp_path)!r}
command = [sys.executable, "gpu_tasks.py", "base, flex", "--smoke", "--folder", folder]
task = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
while task.poll() is None and not (pathlib.Path(folder) / "ready").exists():
    time.sleep(0.05)
print(task.pid if task.poll() is None else None)"""
    environment = os.environ | {"PYTHONPATH": str(SCRIPT.parents[1] / "src")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=SCRIPT.parent, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert not alive(int(done.stdout))


def test_every_task_has_work(gpu: Any) -> None:
    import gpu_tasks

    assert set(gpu_tasks.tasks(None, Path())) == {task.name for task in gpu.TASKS}


def do_tasks(names: list[str], folder: Path, data: Path) -> None:
    """What the script does with these arguments; another process calls it."""
    sys.argv = ["gpu_tasks.py", *names, "--folder", str(folder), "--data", str(data), "--smoke"]
    import gpu_tasks

    gpu_tasks.main()


@pytest.mark.slow
def test_tasks_of_each_kind_run(tmp_path: Path) -> None:
    """In one process, which has PyTorch already, so that it is quicker."""
    names = ["machine", "equations", "search", "compiled, flex", "attention"]
    names += ["learning", "base, flex", "torch.nn.Transformer", "decoding, 1,000"]
    (tmp_path / "go").touch()
    in_fork(do_tasks, names, tmp_path, prepared(tmp_path))
    found = dict(zip(names, json.loads((tmp_path / "answer").read_text()), strict=True))
    assert all(one.get("passes", True) for one in found.values())
    for name in ("base, flex", "torch.nn.Transformer", "decoding, 1,000"):
        assert found[name]["tokens_per_second"] > 0
