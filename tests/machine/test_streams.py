"""Threads that give work to a device at the same time, here without streams, on a CPU."""

import threading
import time

import pytest
import torch

from regard.machine.streams import Streams

CPU = torch.device("cpu")


def test_results_are_in_the_order_of_the_items() -> None:
    delays = [0.05, 0.0, 0.02, 0.0, 0.01]

    def work(i: int) -> int:
        time.sleep(delays[i])
        return i

    assert list(Streams(CPU, 3).map(work, range(5))) == [0, 1, 2, 3, 4]


def test_the_same_threads_work_at_the_same_time_and_again() -> None:
    streams, both = Streams(CPU, 2), threading.Barrier(2)

    def work(i: int) -> int:
        both.wait(60)
        return threading.get_ident()

    first, second = (set(streams.map(work, range(2))) for _ in range(2))
    assert first == second
    assert len(first) == 2
    assert threading.get_ident() not in first


def test_an_error_is_raised_once_those_at_work_are_done() -> None:
    streams, both, done = Streams(CPU, 2), threading.Barrier(2), []

    def work(i: int) -> None:
        if i < 2:
            both.wait(60)
        if i == 0:
            raise ValueError("not this one")
        time.sleep(0.1)
        done.append(i)

    with pytest.raises(ValueError, match="not this one"):
        list(streams.map(work, range(9)))
    assert 1 in done
    assert len(done) < 8  # items that had not begun do not begin
    assert list(streams.map(str, range(3))) == ["0", "1", "2"]
