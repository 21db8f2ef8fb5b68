"""Batching of sentences from many requests."""

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait

import pytest

from regard.serve.batching import Batcher, QueueFull


class Slow:
    """A fake translator that waits for `gate` and records its batches."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.begun, self.gate = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, sentences: list[str]) -> list[str]:
        self.batches.append(sentences)
        self.begun.release()
        assert self.gate.acquire(timeout=30)
        if "bad" in sentences:
            raise ValueError("bad")
        return [sentence.upper() for sentence in sentences]


def words(sentences: Sequence[str]) -> list[int]:
    return [len(sentence.split()) for sentence in sentences]


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def batcher(slow: Slow) -> Iterator[Batcher[str, str]]:
    batcher = Batcher(slow, words, most=7, budget=6, wait=0.0)
    yield batcher
    for _ in range(20):
        slow.gate.release()
    batcher.close()


def occupy(batcher: Batcher[str, str], slow: Slow) -> Future[str]:
    """Keep the batcher's thread busy until the gate opens once."""
    (first,) = batcher.submit(["first"])
    assert slow.begun.acquire(timeout=30)
    return first


def finish(slow: Slow, futures: Sequence[Future[str]]) -> None:
    for _ in range(10):
        slow.gate.release()
    wait(futures, timeout=30)


def test_what_has_come_meanwhile_is_translated_together(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    some = batcher.submit(["one", "two"]) + batcher.submit(["three"])
    finish(slow, [first, *some])
    assert [f.result() for f in some] == ["ONE", "TWO", "THREE"]
    assert slow.batches[1:] == [["one", "two", "three"]]


def test_the_oldest_goes_first_and_with_it_those_of_like_length(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    some = batcher.submit(["a b", "a b c d e", "x y", "z"])
    finish(slow, [first, *some])
    # The budget of six tokens holds three sentences of two words, one of them padded.
    assert [sorted(batch) for batch in slow.batches[1:]] == [["a b", "x y", "z"], ["a b c d e"]]


def test_a_batch_has_room_for_the_padding_of_its_longest(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    some = batcher.submit(["a", "b c d", "e f g"])
    finish(slow, [first, *some])
    assert slow.batches[1:] == [["a", "b c d"], ["e f g"]]


def test_a_batch_that_is_full_waits_for_nothing_more(slow: Slow) -> None:
    batcher = Batcher(slow, words, most=7, budget=6, wait=600.0)
    try:
        batcher.submit(["a b c", "d e f"])
        assert slow.begun.acquire(timeout=30)
    finally:
        slow.gate.release()
        batcher.close()


def test_a_sentence_longer_than_the_budget_is_translated_alone(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    some = batcher.submit(["a b c d e f g h", "x"])
    finish(slow, [first, *some])
    assert slow.batches[1:] == [["a b c d e f g h"], ["x"]]


def test_what_is_cancelled_before_its_turn_is_never_translated(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    gone, stays = batcher.submit(["gone", "stays"])
    assert gone.cancel()
    assert batcher.waiting == 1
    finish(slow, [first, stays])
    assert slow.batches[1:] == [["stays"]]


def test_a_full_queue_refuses_whole_requests_until_there_is_room(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    # Each request is taken whole while the queue is below its limit, 7; the first counts as 4.
    some = batcher.submit(["w"] * 6) + batcher.submit(["long"] * 2)
    assert not batcher.full
    some += batcher.submit(["long"])  # 4 + 2 + 1
    assert (batcher.full, batcher.waiting) == (True, 9)
    with pytest.raises(QueueFull):
        batcher.submit(["refused"])
    finish(slow, [first, *some])
    assert not batcher.full
    assert batcher.submit(["again"])[0].result(30) == "AGAIN"


def test_a_queue_that_fills_while_sentences_are_measured_refuses_them(slow: Slow) -> None:
    def measure(sentences: Sequence[str]) -> list[int]:
        if sentences == ["late"]:
            batcher.submit(["w"] * 7)
        return words(sentences)

    batcher = Batcher(slow, measure, most=4, budget=6, wait=0.0)
    first = occupy(batcher, slow)
    some = batcher.submit(["w"] * 2)
    with pytest.raises(QueueFull):
        batcher.submit(["late"])
    assert batcher.waiting == 9
    finish(slow, [first, *some])
    batcher.close()


def test_a_large_request_keeps_no_other_waiting(batcher: Batcher[str, str], slow: Slow) -> None:
    first = occupy(batcher, slow)
    large = batcher.submit([f"{n}" for n in range(100)])
    assert not batcher.full
    small = batcher.submit(["a b", "c d"]) + batcher.submit(["x y"])
    for _ in range(3):
        slow.gate.release()
        assert slow.begun.acquire(timeout=30)
    finish(slow, [first, *small])
    assert slow.batches[1] == [f"{n}" for n in range(6)]
    assert slow.batches[2][:2] == ["a b", "c d"]
    for _ in range(20):
        slow.gate.release()
    assert [future.result(30) for future in large] == [f"{n}" for n in range(100)]


def test_new_requests_keep_no_older_one_waiting(batcher: Batcher[str, str], slow: Slow) -> None:
    """A new request comes during each batch; each sentence is a batch of its own."""
    first = occupy(batcher, slow)
    old = batcher.submit(["a b c d e f"] * 3)
    later = list[Future[str]]()
    for _ in range(8):
        later += batcher.submit(["u v w x y z"])
        slow.gate.release()
        assert slow.begun.acquire(timeout=30)
    assert len([batch for batch in slow.batches if batch == ["a b c d e f"]]) == 3
    finish(slow, [first, *old, *later])


def test_a_request_without_sentences_waits_for_nothing(batcher: Batcher[str, str]) -> None:
    assert batcher.submit([]) == []
    assert batcher.waiting == 0


def test_a_failure_belongs_to_its_batch_and_the_thread_goes_on(
    batcher: Batcher[str, str], slow: Slow
) -> None:
    first = occupy(batcher, slow)
    bad = batcher.submit(["bad", "beside"])
    finish(slow, [first, *bad])
    assert all(isinstance(f.exception(), ValueError) for f in bad)
    assert batcher.submit(["good"])[0].result(30) == "GOOD"


def test_a_sentence_without_a_result_fails_and_the_thread_goes_on() -> None:
    batcher = Batcher(lambda some: some[:2], words, most=7, wait=0.0)
    *two, third = batcher.submit(["one", "two", "three"])
    assert [future.result(30) for future in two] == ["one", "two"]
    assert isinstance(third.exception(30), ValueError)
    assert batcher.submit(["good"])[0].result(30) == "good"
    batcher.close()


def test_an_error_that_is_no_exception_does_not_end_the_thread() -> None:
    class Panic(BaseException):
        """As the exceptions of extension modules in Rust."""

    def translate(sentences: list[str]) -> list[str]:
        if sentences == ["bad"]:
            raise Panic
        return sentences

    def restless() -> None:
        raise MemoryError

    batcher = Batcher(translate, words, most=7, wait=0.0, rest=restless, idle=0.0)
    assert isinstance(batcher.submit(["bad"])[0].exception(30), Panic)
    assert batcher.submit(["good"])[0].result(30) == "good"
    assert batcher.alive
    batcher.close()
    assert not batcher.alive


def test_sentences_are_forgotten_while_others_are_chosen() -> None:
    """A thread that forgets a sentence waits until the other one has chosen a batch."""
    batcher = Batcher(lambda sentences: sentences, words, most=10**6, wait=0.0)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            futures = batcher.submit(["a b c"] * 500)
            for future in reversed(futures):
                future.cancel()
        assert batcher.submit(["good"])[0].result(30) == "good"
    finally:
        sys.setswitchinterval(interval)
        batcher.close()


def test_closing_translates_what_waits_and_refuses_what_comes(slow: Slow) -> None:
    batcher = Batcher(slow, words, most=7)
    first = occupy(batcher, slow)
    some = batcher.submit(["one", "two"])
    closing = threading.Thread(target=batcher.close)
    closing.start()
    finish(slow, [first, *some])
    closing.join(30)
    assert [f.result() for f in some] == ["ONE", "TWO"]
    with pytest.raises(QueueFull):
        batcher.submit(["late"])


def test_every_sentence_of_many_threads_gets_its_own_answer() -> None:
    batcher = Batcher(lambda some: [s.upper() for s in some], words, most=10_000, wait=0.001)
    wrong: list[str] = []

    def ask(number: int) -> None:
        for i in range(50):
            some = [f"n{number} i{i}" + " w" * (i % 5), f"n{number} second{i}"]
            found = [f.result(30) for f in batcher.submit(some)]
            wrong.extend(f for f, s in zip(found, some, strict=True) if f != s.upper())

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert wrong == []
    assert batcher.waiting == 0


def test_it_rests_once_after_its_work() -> None:
    rested = threading.Semaphore(0)
    batcher = Batcher(lambda some: some, words, most=7, rest=rested.release, idle=0.01)
    try:
        assert not rested.acquire(timeout=0.1)  # it has not worked yet
        for _ in range(2):
            wait(batcher.submit(["one", "two"]), timeout=30)
            assert rested.acquire(timeout=30)
            assert not rested.acquire(timeout=0.1)
    finally:
        batcher.close()
