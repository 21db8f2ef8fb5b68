"""Parts are done once, whichever process does them; what is busy or not ready waits."""

import json
import multiprocessing
import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from regard.errors import DataError, RegardError
from regard.files.locks import locked
from regard.parts import kept
from regard.parts.kept import Finished, Measured, Task, do_all, finished


def noted(out: Path, name: str) -> Measured:
    """A part that tells how often it was done."""
    with (out / "done").open("a") as file:
        file.write(f"{name}\n")
    return {"length": float(len(name))}


def after_the_other(out: Path) -> Measured | None:
    """A part that needs the numbers of part `a`."""
    return noted(out, "late") if (out / "parts" / "a-1.json").exists() else None


def task(out: Path, name: str, seed: int = 1, settings: str = "s") -> Task:
    return Task(name, seed, settings, partial(noted, out, name))


def done(out: Path) -> list[str]:
    return sorted((out / "done").read_text().split())


@pytest.mark.parametrize("jobs", [0, 2])
def test_each_part_is_done_once(tmp_path: Path, jobs: int) -> None:
    tasks = [task(tmp_path, name, seed) for seed in (1, 2) for name in ("a", "bb")]
    heard: list[Finished] = []
    first = do_all(tasks, tmp_path, jobs=jobs, heard=heard.append)
    assert first == {("a", 1): {"length": 1}, ("bb", 1): {"length": 2}, ("a", 2): {"length": 1},
                     ("bb", 2): {"length": 2}}  # fmt: skip
    assert sorted(one.number for one in heard) == [1, 2, 3, 4]
    assert do_all(tasks, tmp_path, jobs=jobs) == first == finished(tasks, tmp_path)
    assert done(tmp_path) == ["a", "a", "bb", "bb"]


def test_what_is_most_work_is_begun_first(tmp_path: Path) -> None:
    small, large = task(tmp_path, "small"), replace(task(tmp_path, "large"), cost=2.0)
    do_all([small, large, task(tmp_path, "last")], tmp_path)
    assert (tmp_path / "done").read_text().split() == ["large", "small", "last"]


def test_after_is_called_when_the_numbers_are_there(tmp_path: Path) -> None:
    seen = []
    tasks = [task(tmp_path, name) for name in "ab"]
    do_all(tasks, tmp_path, after=lambda: seen.append(len(finished(tasks, tmp_path))))
    assert seen == [1, 2]


def test_a_part_waits_for_another(tmp_path: Path) -> None:
    late = Task("late", 1, "s", partial(after_the_other, tmp_path))
    do_all([late, task(tmp_path, "a")], tmp_path)
    assert (tmp_path / "done").read_text().split() == ["a", "late"]


def hold(path: Path, begun: "multiprocessing.synchronize.Event") -> None:
    with locked(path):
        begun.set()
        multiprocessing.Event().wait()


def test_a_killed_process_frees_its_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another process has the part, this one waits; when that one is killed, it is free."""
    context = multiprocessing.get_context("spawn")
    begun, lock = context.Event(), tmp_path / "parts" / ".a-1.lock"
    other = context.Process(target=hold, args=(lock, begun))
    other.start()
    assert begun.wait(60)
    waits = []

    def kill(seconds: float) -> None:
        waits.append(seconds)
        other.kill()
        other.join()

    monkeypatch.setattr(kept, "sleep", kill)
    with locked(lock, wait=False) as mine:
        assert not mine
    do_all([task(tmp_path, "a")], tmp_path)
    assert waits == [kept.WAIT]
    assert done(tmp_path) == ["a"]


def test_a_killed_worker_ends_the_work_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match=r"was killed \(status 3\).*use fewer --jobs and"):
        do_all([Task("a", 1, "s", partial(os._exit, 3))], tmp_path, jobs=1)


def test_parts_of_other_settings_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    do_all([task(tmp_path, "a")], tmp_path)
    path = tmp_path / "parts" / "a-1.json"
    assert json.loads(path.read_text()) == {"settings": "s", "numbers": {"length": 1}}
    with pytest.raises(DataError, match=r"a-1\.json: was measured with other settings.*--out"):
        do_all([task(tmp_path, "a", settings="t")], tmp_path)
    path.write_text("{")
    with pytest.raises(DataError, match="cannot be read as a finished part: remove it"):
        finished([task(tmp_path, "a")], tmp_path)
