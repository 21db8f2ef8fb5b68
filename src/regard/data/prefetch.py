"""Batches that another process makes in advance, so that a step need not wait for its data.

Making a batch takes milliseconds, and planning the batches of the next window (a large group of
pairs) takes half a second. During this time, a GPU would be idle. So the other process makes up to
AHEAD batches in advance. The two processes share only two pipes: each byte from this process asks
for one batch, and the other process answers with the batch and the position after that batch. In
whatever way this process ends, the pipes close, and then the other process ends as well.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

import torch

from regard.data.batches import Batch, Batches
from regard.data.rows import Rows
from regard.errors import TrainingError
from regard.machine.child import pipes, started

AHEAD = 64
"""How many batches are made in advance. If a step on one batch takes 25 ms, 64 batches last
1.6 s, which is longer than the planning of a window takes. 64 batches of 25,000 source and 25,000
target tokens need 90 MB of memory."""

_Received = tuple[list[Batch], dict[str, int], float]
"""This process's share of a batch; the position, and how many epochs were seen, after the batch."""


class Prefetched:
    """The batches that `batches` would give next, made by another process.

    `make` is pickled and called in the other process. The `Batches` that `make` returns may differ
    from `batches` only in the position; the other process sets it to the position of `batches`. If
    there is a GPU, the tensors are in pinned memory, which the GPU can read while this process
    continues. Raises TrainingError if the other process cannot be started.
    """

    def __init__(self, batches: Batches, make: Callable[[], Batches]):
        self._state, self._epoch = batches.state(), batches.epoch
        program = "from regard.data.prefetch import serve_batches; serve_batches()"
        try:
            process = started(program, CUDA_VISIBLE_DEVICES="")
        except OSError as error:
            raise TrainingError(
                f"the process that makes batches cannot be started: {error.strerror}: allow this "
                "user more processes or memory"
            ) from None
        assert process.stdin
        self.pid, self._asking = process.pid, process.stdin
        self._received: SimpleQueue[_Received | Exception] = SimpleQueue()
        arguments = process, self._received
        receiver = threading.Thread(target=_receive, args=arguments, daemon=True)
        receiver.start()
        # The process and the thread end with this object.
        self.close = weakref.finalize(self, _end, process, receiver)
        self._write(pickle.dumps((make, self._state)) + bytes(AHEAD))

    @property
    def epoch(self) -> float:
        """Epochs seen so far, as in `Batches.epoch`."""
        return self._epoch

    def state(self) -> dict[str, int]:
        """The position after the batch that was taken last, for `Batches.restore`."""
        return self._state

    def take(self, n: int) -> list[Batch]:
        """This process's share of the next n batches, on the CPU, as `Batches.take` returns it.

        If the other process fails to make a batch, or this process fails to receive a batch, the
        exception of this failure is raised here. Raises TrainingError if the other process ended
        for another reason.
        """
        return [part for _ in range(n) for part in self._next()]

    def _next(self) -> list[Batch]:
        received = self._received.get()
        if isinstance(received, Exception):
            # Put the exception back: the next call raises it again, instead of waiting for ever.
            self._received.put(received)
            raise received
        self._write(bytes(1))
        parts, self._state, self._epoch = received
        return parts

    def _write(self, message: bytes) -> None:
        with suppress(BrokenPipeError):  # the receiver reports that the process has ended
            self._asking.write(message)
            self._asking.flush()


def serve_batches() -> None:
    """Run the program of the other process: send one batch for each byte that arrives."""
    asked, given = pipes()
    with suppress(BrokenPipeError):
        try:
            make, state = pickle.load(asked)
            batches = make()
            batches.restore(state)
            while asked.read(1):
                parts = [_arrays(part) for part in batches.take(1)]
                _send((parts, batches.state(), batches.epoch), given)
        except Exception as error:
            _send(error, given)
    os._exit(0)  # os._exit does not flush the pipes: if they are closed, a flush would fail


def _send(message: Any, given: Any) -> None:
    pickle.dump(message, given, protocol=5)
    given.flush()


def _arrays(batch: Batch) -> tuple[Any, ...]:
    """The tensors of a batch as numpy arrays, and the batch's numbers of tokens.

    An array is pickled in one piece, and a tensor is not.
    """
    tensors = (*batch.source, *batch.target, batch.labels)
    return *(tensor.numpy() for tensor in tensors), batch.source_tokens, batch.target_tokens


def _batch(arrays: tuple[Any, ...], pinned: bool) -> Batch:
    tensors = [torch.from_numpy(array) for array in arrays[:7]]
    if pinned:
        tensors = [tensor.pin_memory() for tensor in tensors]
    return Batch(Rows(*tensors[:3]), Rows(*tensors[3:6]), tensors[6], *arrays[7:])


def _receive(process: subprocess.Popen[bytes], received: SimpleQueue[Any]) -> None:
    """Read all that the process sends, and put it into `received`; runs in a thread."""
    assert process.stdout
    pinned = torch.cuda.is_available()
    with process.stdout:
        try:
            while not isinstance(message := pickle.load(process.stdout), Exception):
                parts, state, epoch = message
                received.put(([_batch(arrays, pinned) for arrays in parts], state, epoch))
        except (EOFError, pickle.UnpicklingError):
            message = TrainingError(
                f"the process that forms batches ended with status {process.wait()}: check that "
                "memory is not short; the same command continues from the last checkpoint"
            )
        except Exception as error:  # pinning may fail, and `take` must not wait for ever
            message = error
        received.put(message)


def _end(process: subprocess.Popen[bytes], receiver: threading.Thread) -> None:
    process.kill()
    process.wait()
    if receiver is not threading.current_thread():
        # Wait: if Python exits while the thread is inside PyTorch, this process aborts.
        receiver.join()
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.close()
