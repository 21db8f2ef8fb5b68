"""Ctrl-C and SIGTERM make a run save and stop; a second signal stops it at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Training saved its state and stopped because of a signal; `status` is the exit status."""

    def __init__(self, signum: int, step: int):
        self.status = 128 + signum
        super().__init__(
            f"stopped at step {step}, which is saved; the same command continues from it"
        )


class Interrupt:
    """Records the first signal.

    If `patient`, later signals are ignored, because torchrun and a cluster's scheduler may each
    send one.
    """

    signum: int | None = None
    """The signal received; None before."""

    def __init__(self, patient: bool = False):
        self.patient = patient

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Record a first signal; raise KeyboardInterrupt at a second, unless `patient`."""
        if self.signum is not None and not self.patient:
            raise KeyboardInterrupt
        self.signum = signum


@contextmanager
def interruptible(patient: bool = False) -> Iterator[Interrupt]:
    """Within the block, SIGINT and SIGTERM are recorded instead of ending the process."""
    interrupt = Interrupt(patient)
    previous = {s: signal.signal(s, interrupt.handle) for s in SIGNALS}
    try:
        yield interrupt
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
