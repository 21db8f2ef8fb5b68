"""Threads that divide the cores: the order of results, the shares, and all cores afterwards."""

import threading
import time
from collections.abc import Iterator

import pytest
import torch

from regard.machine.threads import side_by_side


@pytest.fixture(autouse=True)
def six_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(6)
    yield
    assert torch.get_num_threads() == 6
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("workers", "share", "each"), [(3, None, 2), (2, None, 3), (6, 1, 1), (8, None, 1)]
)
def test_each_has_its_share_of_the_cores(workers: int, share: int | None, each: int) -> None:
    done = side_by_side(lambda i: (i, torch.get_num_threads()), range(9), workers, share)
    assert list(done) == [(i, each) for i in range(9)]


def test_they_work_at_the_same_time() -> None:
    both = threading.Barrier(2)
    assert len(list(side_by_side(lambda i: both.wait(60), range(2), 2))) == 2


@pytest.mark.parametrize(("items", "workers"), [(1, 4), (3, 1), (0, 2)])
def test_one_at_a_time_takes_no_thread(items: int, workers: int) -> None:
    done = list(side_by_side(lambda i: threading.current_thread(), range(items), workers))
    assert done == [threading.current_thread()] * items


def test_an_error_is_raised_once_those_at_work_are_done() -> None:
    both, done = threading.Barrier(2), []

    def work(i: int) -> None:
        both.wait(60)
        if i == 0:
            raise ValueError("not this one")
        time.sleep(0.1)
        done.append(i)

    with pytest.raises(ValueError, match="not this one"):
        list(side_by_side(work, range(2), 2))
    assert done == [1]


def test_an_interrupt_while_threads_end_leaves_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.ThreadPoolExecutor.shutdown", interrupted)
    found: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        list(side_by_side(lambda i: i, range(4), 2))
    asking = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    asking.start()
    asking.join()
    assert found == [6]
