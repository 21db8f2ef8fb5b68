"""Ctrl-C and SIGTERM make a run save and stop; a second signal stops it at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal stopped training after a save; `status` is the exit status of the program."""

    def __init__(self, signum: int, step: int):
        self.status = 128 + signum
        super().__init__(
            f"stopped at step {step}, which is saved; the same command does what is left"
        )


class Interrupt:
    """Records the first signal; the second one raises KeyboardInterrupt, unless `patient` is True.

    If `patient` is True, every signal is recorded. A process of torchrun should be patient, because
    torchrun and a cluster's scheduler may both send a signal.
    """

    signum: int | None = None
    """Number of the last signal that was recorded; None until one is received."""

    def __init__(self, patient: bool = False):
        self.patient = patient

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Record a signal; unless `patient` is True, raise KeyboardInterrupt at the second one."""
        if self.signum is not None and not self.patient:
            raise KeyboardInterrupt
        self.signum = signum


@contextmanager
def interruptible(patient: bool = False) -> Iterator[Interrupt]:
    """Within the block, the first SIGINT or SIGTERM is recorded and does not end the process."""
    interrupt = Interrupt(patient)
    previous = {s: signal.signal(s, interrupt.handle) for s in SIGNALS}
    try:
        yield interrupt
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block SIGINT and SIGTERM in a `with` block, and in the processes that are started in it.

    If a signal comes within the block, this process reacts to the signal after the block. In the
    started processes, the signals stay blocked.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # child processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
