"""The GPU's tasks without a GPU: the driver says so, keeps its record, and `--smoke` runs tasks."""

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

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


def test_the_record_is_written_after_each_task_and_the_same_command_continues(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, ran = tmp_path / "gpu-nvidia-h100.json", []
    some = options(tmp_path, tasks=["machine", "equations", "search"])

    def fake(work: Any, *_: Any) -> dict[str, Any]:
        ran.append(work.task.name)
        if ran[-1] == "search":
            while "equations" not in json.loads(path.read_text())["tasks"]:
                time.sleep(0.01)
            raise KeyboardInterrupt
        return {"failed": "status 1: no"} if ran[-1] == "equations" else {"ms": 1.0}

    monkeypatch.setattr(gpu, "gpu_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(gpu, "run", fake)
    with pytest.raises(KeyboardInterrupt):
        gpu.run_all(some)
    assert ran == ["machine", "equations", "search"]
    assert [*json.loads(path.read_text())["tasks"]] == ["machine", "equations"]
    ran.clear()
    monkeypatch.setattr(gpu, "run", lambda work, *_: ran.append(work.task.name) or {"passes": True})
    assert gpu.run_all(some) == 0
    assert ran == ["equations", "search"]  # what failed, and what was not done
    assert gpu.run_all(options(tmp_path, tasks=["machine"], again=True)) == 0
    assert ran[2:] == ["machine"]
    assert "machine: is in " in capsys.readouterr().out


@pytest.mark.parametrize("found", [{"failed": "took more than 9 s"}, {"passes": False, "x": 1.0}])
def test_a_task_that_fails_sets_the_status(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: dict[str, Any]
) -> None:
    monkeypatch.setattr(gpu, "gpu_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(gpu, "run", lambda *_: found)
    assert gpu.run_all(options(tmp_path, tasks=["machine"])) == 1


def test_the_budget_bounds_all_tasks(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, limits = 0.0, []

    def fake(work: Any, seconds: float, *_: Any) -> dict[str, Any]:
        nonlocal now
        limits.append(seconds)
        now += seconds
        return {"ms": 1.0}

    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr(gpu, "gpu_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(gpu, "run", fake)
    gpu.run_all(options(tmp_path, budget=210.0))
    assert limits == [60, 120, 30]
    assert "the budget of 210 s is used up" in capsys.readouterr().out


def test_a_task_that_hangs_or_crashes_is_ended_and_named(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "HERE", tmp_path)
    script = tmp_path / "gpu_tasks.py"
    script.write_text("import time; time.sleep(60)")
    work, out = gpu.Work(gpu.Task("machine", 9)), tmp_path / "out"
    assert gpu.run(work, 0.5, options(out), set()) == {"failed": "took more than 0 s"}
    script.write_text("raise SystemExit('the GPU fell off the bus')")
    assert gpu.run(work, 20, options(out), set()) == {
        "failed": "status 1: the GPU fell off the bus"
    }
    kept = (out / "gpu-errors.txt").read_text()
    assert kept == "== machine ==\nthe GPU fell off the bus\n\n"


def test_what_is_timed_runs_alone_after_checks_and_compiling(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["machine", "search", "dropout", "base, flex", "decoding, 1,000"]
    met, together = threading.Barrier(3), []

    def fake(work: Any, *_: Any) -> dict[str, Any]:
        if shared := work.prepare or not work.task.timed:
            met.wait(timeout=20)  # until three processes run at the same time
        together.append((shared, work.prepare, work.task.name))
        return {"ms": 1.0}

    monkeypatch.setattr(gpu, "gpu_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(gpu, "run", fake)
    gpu.run_all(options(tmp_path, tasks=names, at_once=3))
    assert together[0] == (False, False, "machine")
    assert sorted(together[1:4]) == [
        (True, False, "dropout"), (True, False, "search"), (True, True, "base, flex"),
    ]  # fmt: skip
    assert together[4:] == [(False, False, "base, flex"), (False, False, "decoding, 1,000")]


def test_an_interruption_ends_the_processes(
    gpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, began = tmp_path / "gpu_tasks.py", tmp_path / "began"
    script.write_text(f"open({str(began)!r}, 'w').close(); import time; time.sleep(600)")
    real = gpu.run

    def fake(work: Any, seconds: float, args: Any, running: Any) -> Any:
        if work.task.name != "search":
            return real(work, seconds, args, running)
        while not began.exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu, "HERE", tmp_path)
    monkeypatch.setattr(gpu, "gpu_name", lambda: "NVIDIA H100")
    monkeypatch.setattr(gpu, "run", fake)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        gpu.run_all(options(tmp_path, tasks=["search", "dropout"], at_once=2))
    assert time.monotonic() - begin < 60


def test_every_task_has_work(gpu: Any) -> None:
    import gpu_tasks

    assert set(gpu_tasks.tasks(None)) == {task.name for task in gpu.TASKS}


def do_tasks(names: list[str], answer: Path) -> None:
    """What the script does with these arguments; another process calls it."""
    sys.argv = ["gpu_tasks.py", *names, "--answer", str(answer), "--smoke"]
    import gpu_tasks

    gpu_tasks.main()


@pytest.mark.slow
def test_tasks_of_each_kind_run(tmp_path: Path) -> None:
    """In one process, which has PyTorch already, so that it is quicker."""
    names = ["machine", "equations", "search", "compiled, flex", "attention"]
    names += ["base, flex", "torch.nn.Transformer", "decoding, 1,000"]
    answer = tmp_path / "answer.json"
    in_fork(do_tasks, names, answer)
    found = dict(zip(names, json.loads(answer.read_text()), strict=True))
    assert all(one.get("passes", True) for one in found.values())
    for name in ("base, flex", "torch.nn.Transformer", "decoding, 1,000"):
        assert found[name]["tokens_per_second"] > 0
