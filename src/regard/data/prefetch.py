"""Batches packed ahead of need by another process, so that a step never waits for its data.

To pack a batch takes milliseconds, and to plan the next window of pairs half a second, for which a
GPU would stand still. So a second interpreter packs, up to AHEAD batches in advance. It shares
nothing with this one but two pipes: a byte in asks for one batch, and out comes the batch with the
position after it. However this process ends, its pipes end with it, and then the other ends too.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch

from regard.data.batches import WHOLE, Batch, Batches, BatchShare
from regard.data.pairs import Pairs
from regard.data.rows import Rows
from regard.errors import TrainingError
from regard.machine.child import pipes, started
from regard.recipe import Recipe

AHEAD = 64
"""Batches asked for in advance: 1.6 s of 25 ms steps, longer than a window takes to plan; 90 MB."""


def batches_of(pairs: Pairs, recipe: Recipe, share: BatchShare = WHOLE) -> Batches:
    """As the recipe has them."""
    seed, layout = recipe.training.seed, recipe.data.layout
    return Batches(pairs, recipe.data, seed, layout=layout, share=share)


def training_batches(data: Path, recipe: Recipe, share: BatchShare = WHOLE) -> Batches:
    """Those of the training pairs of prepared data."""
    return batches_of(Pairs.open(data, "train"), recipe, share)


_Packed = tuple[list[Batch], dict[str, int], float]
"""The share of one batch, and after it the position and the epochs seen."""


class Prefetched:
    """What `batches` would give next, from another process; the position is of what was taken.

    `make` gives the like of `batches` there; it is pickled. Where there is a GPU, the tensors are
    in pinned memory, which it reads while the host goes on. What is raised while packing, `take`
    raises in its turn; it raises TrainingError where the process came to another end.
    """

    def __init__(self, batches: Batches, make: Callable[[], Batches]):
        self._state, self._epoch = batches.state(), batches.epoch
        program = "from regard.data.prefetch import serve_batches; serve_batches()"
        process = started(program, CUDA_VISIBLE_DEVICES="")
        assert process.stdin
        self.pid, self._asking = process.pid, process.stdin
        self._received: SimpleQueue[_Packed | Exception] = SimpleQueue()
        arguments = process, self._received
        receiver = threading.Thread(target=_receive, args=arguments, daemon=True)
        receiver.start()
        self.close = weakref.finalize(self, _end, process, receiver)  # they go with this object
        self._write(pickle.dumps((make, self._state)) + bytes(AHEAD))

    @property
    def epoch(self) -> float:
        """Epochs seen so far, as `Batches.epoch`."""
        return self._epoch

    def state(self) -> dict[str, int]:
        """The position after the batch last taken; `Batches.restore` takes it."""
        return self._state

    def take(self, n: int) -> list[Batch]:
        """The share of the next n batches, on the CPU; on into the following epochs."""
        return [part for _ in range(n) for part in self._next()]

    def _next(self) -> list[Batch]:
        received = self._received.get()
        if isinstance(received, Exception):
            self._received.put(received)  # for whoever asks again
            raise received
        self._write(bytes(1))
        parts, self._state, self._epoch = received
        return parts

    def _write(self, message: bytes) -> None:
        with suppress(BrokenPipeError):  # of its end the receiver tells
            self._asking.write(message)
            self._asking.flush()


def serve_batches() -> None:
    """What the other process does: pack a batch for each byte that comes."""
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
    os._exit(0)  # without a last word to a pipe that may be gone


def _send(message: Any, given: Any) -> None:
    pickle.dump(message, given, protocol=5)
    given.flush()


def _arrays(batch: Batch) -> tuple[Any, ...]:
    """As numpy arrays: those are pickled in one piece, tensors are not."""
    tensors = (*batch.source, *batch.target, batch.labels)
    return *(tensor.numpy() for tensor in tensors), batch.source_tokens, batch.target_tokens


def _batch(arrays: tuple[Any, ...], pinned: bool) -> Batch:
    tensors = [torch.from_numpy(array) for array in arrays[:7]]
    if pinned:
        tensors = [tensor.pin_memory() for tensor in tensors]
    return Batch(Rows(*tensors[:3]), Rows(*tensors[3:6]), tensors[6], *arrays[7:])


def _receive(process: subprocess.Popen[bytes], received: SimpleQueue[Any]) -> None:
    """The thread that reads what the process sends, until it ends."""
    assert process.stdout
    pinned = torch.cuda.is_available()
    with process.stdout:
        try:
            while not isinstance(message := pickle.load(process.stdout), Exception):
                parts, state, epoch = message
                received.put(([_batch(arrays, pinned) for arrays in parts], state, epoch))
        except (EOFError, pickle.UnpicklingError):
            message = TrainingError(
                f"the process that packs batches ended with status {process.wait()}: see that "
                "memory is not short; the same command goes on from the last checkpoint"
            )
        except Exception as error:  # pinning may fail, and nobody shall wait for ever
            message = error
        received.put(message)


def _end(process: subprocess.Popen[bytes], receiver: threading.Thread) -> None:
    process.kill()
    process.wait()
    if receiver is not threading.current_thread():
        receiver.join()  # a thread that Python's own end cuts off in PyTorch would abort it
    assert process.stdin
    with suppress(BrokenPipeError):
        process.stdin.close()
