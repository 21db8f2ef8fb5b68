"""Ctrl-C and SIGTERM ask a run to save and leave; asked twice, it leaves at once."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """Training stopped because a signal asked it to, after saving; `status` is the exit status."""

    def __init__(self, signum: int, step: int):
        self.status = 128 + signum
        super().__init__(
            f"stopped at step {step}, which is saved; the same command goes on from it"
        )


class Interrupt:
    """Whether a signal has come.

    A `patient` one obeys no second signal: torchrun and a cluster's scheduler each send their own.
    """

    signum: int | None = None

    def __init__(self, patient: bool = False):
        self.patient = patient

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Note a first signal; obey a second at once."""
        if self.signum is not None and not self.patient:
            raise KeyboardInterrupt
        self.signum = signum


@contextmanager
def interruptible(patient: bool = False) -> Iterator[Interrupt]:
    """Within the block, SIGINT and SIGTERM are noted instead of obeyed."""
    interrupt = Interrupt(patient)
    previous = {s: signal.signal(s, interrupt.handle) for s in SIGNALS}
    try:
        yield interrupt
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
