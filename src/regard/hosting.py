"""Training in a user's own process: its signal handlers and random states are restored afterwards.

Modules that need PyTorch, which takes over a second to load, are imported only in functions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIGINT
from threading import current_thread, main_thread
from traceback import clear_frames
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.machine.interrupt import Interrupt


@contextmanager
def settings_kept() -> Iterator[None]:
    """A context in which this process can train; at its end, settings are restored.

    PyTorch then has the same random states and number of threads as before, and computes gradients
    only if it did so before. malloc gets its default settings, by which it returns freed memory to
    the system.
    """
    import torch

    from regard.machine.cores import usable_cores
    from regard.machine.devices import choose_device, random_numbers_kept, return_freed_memory
    from regard.machine.threads import computing_with

    threads = min(torch.get_num_threads(), usable_cores())
    try:
        with (
            random_numbers_kept(choose_device()),
            computing_with(threads),
            torch.inference_mode(mode=False),
            torch.enable_grad(),
        ):
            yield
    finally:
        return_freed_memory()


def without_draws(progress: Callable[[Any], object]) -> Callable[[Any], None]:
    """A function that calls `progress`, and then restores PyTorch's random states.

    So training draws the same random numbers, even if `progress` draws some.
    """
    from regard.machine.devices import choose_device, random_numbers_kept

    device = choose_device()

    def hear(record: Any) -> None:
        with random_numbers_kept(device):
            progress(record)

    return hear


@contextmanager
def heard(progress: Callable[[Any], object]) -> Iterator[Callable[[Any], None]]:
    """A context that yields a function that calls `progress`.

    If `progress` raises an OSError, code in the block may mistake this error for its own failure to
    write a file, and raise another exception. The context then raises the OSError instead.
    """
    raised: list[OSError] = []

    def hear(record: Any) -> None:
        try:
            progress(record)
        except OSError as error:
            raised.append(error)
            raise

    try:
        yield hear
    except Exception:
        if raised:
            raise raised[0] from None
        raise


@contextmanager
def saving_at_a_signal(patient: bool) -> "Iterator[Interrupt]":
    """A context that yields an `Interrupt`, which records SIGINT, SIGTERM and SIGHUP.

    After a signal, the run saves a checkpoint and raises Interrupted. This context then raises
    KeyboardInterrupt for SIGINT, and SystemExit for SIGTERM and SIGHUP. If `patient` is True, a
    second signal does not stop the run before the checkpoint is saved. Outside the main thread, no
    signal is recorded.
    """
    from regard.machine.interrupt import Interrupt, Interrupted, interruptible

    if current_thread() is not main_thread():  # only the main thread receives signals
        yield Interrupt()
        return
    try:
        with interruptible(patient) as interrupt:
            yield interrupt
    except Interrupted as stopped:
        # A notebook keeps the exception, whose frames would keep the model in memory.
        clear_frames(stopped.__traceback__)
        if interrupt.signum == SIGINT:
            raise KeyboardInterrupt(str(stopped)) from None
        raise SystemExit(stopped.status) from None
