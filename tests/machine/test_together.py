"""Agreement between processes: errors, differences, and a process that is alone."""

import re
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from regard.errors import DataError, TrainingError
from regard.machine.processes import ALONE, Processes, together
from run.ranks import ended, started

NO_PROCESS = 2**22 + 1
"""More than the largest number of a process."""


def fail(error: Exception, at: int) -> None:
    with together() as processes:
        for piece in range(2):
            found = processes.first_does(lambda n=piece: (time.sleep(0.1), n))
            assert found == (None, piece)
        if processes.rank == at:
            raise error
        processes.sum(1)


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (DataError("no such file", "a.txt"), 2, "regard: rank 1: a.txt: no such file\n"),
        (MemoryError(), 1, r"Traceback .*\nregard: rank 1: MemoryError\n"),
    ],
)
def test_an_error_in_one_ends_all_with_one_message(
    error: Exception, status: int, said: str, tmp_path: Path
) -> None:
    begun = time.monotonic()
    statuses = ended(started(3, fail, error, 1, stderr=tmp_path / "log"))
    assert time.monotonic() - begun < 60
    assert statuses[1] == status
    assert all(statuses)
    assert re.fullmatch(said, (tmp_path / "log").read_text(), re.DOTALL)


def disagree() -> None:
    with together() as processes:
        processes.refuse_differences(data=["this", "that"][processes.rank])


def test_processes_that_are_given_different_things_are_refused(tmp_path: Path) -> None:
    assert ended(started(2, disagree, stderr=tmp_path / "log")) == [2, 2]
    assert re.fullmatch(
        r"regard: rank (\d): data differs: \w+ on rank (?!\1)\d, \w+ on rank \1: give .*\n",
        (tmp_path / "log").read_text(),
    )


def test_alone_everything_is_as_it_was(tmp_path: Path) -> None:
    with together() as processes:
        assert processes is ALONE
    tensor = torch.ones(3)
    ALONE.add_up(tensor)
    ALONE.give(tensor)
    assert tensor.tolist() == [1, 1, 1]
    assert ALONE.sum(2, 3) == [2, 3]
    assert ALONE.all("x") == ["x"]
    assert ALONE.first_does(lambda: 5) == 5
    ALONE.refuse_differences(recipe=1)


def test_without_torchrun_they_do_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(TrainingError, match="start them with torchrun"), together():
        pass


@pytest.mark.parametrize(
    ("namespace", "said"),
    [("pid:[7]", r"a process on another host \(no answer\) has ended"), (None, "rank 1 has ended")],
)
def test_a_process_of_another_container_is_not_taken_for_one_that_has_ended(
    namespace: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers may have the same host name; an id means another process in each of them."""

    def failing(_: torch.Tensor) -> None:
        raise RuntimeError("no answer")

    store = torch.distributed.HashStore()
    with monkeypatch.context() as patch:
        patch.setattr("os.getpid", lambda: 2**31)  # which no process has
        if namespace:
            patch.setattr("os.readlink", lambda _: namespace)
        Processes(1, 2, store).introduce()
    first = Processes(0, 2, store)
    first.introduce()
    monkeypatch.setattr("regard.machine.processes.SECONDS_TO_DIE", 0.0)
    monkeypatch.setattr("torch.distributed.all_reduce", failing)
    with pytest.raises(TrainingError, match=said):
        first.sum(1)


def test_a_process_knows_whether_it_is_the_first() -> None:
    assert Processes(0, 2).first
    assert not Processes(1, 2).first


@pytest.mark.parametrize(("proc", "said"), [(True, "rank 0 and rank 1"), (False, "a process on")])
def test_without_proc_nobody_is_known_to_have_ended(
    proc: bool, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Systems other than Linux have no /proc."""

    def broken(_: torch.Tensor) -> None:
        raise RuntimeError("connection closed")

    name = "regard.machine.processes"
    monkeypatch.setattr(f"{name}.SECONDS_TO_DIE", 0)
    monkeypatch.setattr("torch.distributed.all_reduce", broken)
    if not proc:
        monkeypatch.setattr(f"{name}.PROC", tmp_path)
    stored: dict[str, str] = {}
    store = SimpleNamespace(set=stored.__setitem__, get=lambda key: stored[key].encode())
    monkeypatch.setattr("os.getpid", lambda: NO_PROCESS)
    for rank in range(2):
        Processes(rank, 2, store).introduce()
    with pytest.raises(TrainingError, match=f"^{said}.* has ended"):
        Processes(0, 2, store).sum(1)
    assert stored["process/0"].startswith(socket.gethostname())
