"""Ctrl-C, SIGTERM or a closed terminal makes a training run save a checkpoint and stop.

In other commands, `handled_by` lets a function handle these signals; `signals_blocked` delays them.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals of Ctrl-C, of a request to end the process, and of a closed terminal."""


class Interrupted(BaseException):
    """A signal stopped training after a save; `status` is the exit status of the program."""

    def __init__(self, signum: int, step: int):
        self.status = 128 + signum
        super().__init__(
            f"stopped at step {step}, which is saved; the same command does what is left"
        )


class Interrupt:
    """Records the first signal; the second raises KeyboardInterrupt, unless `patient` is True.

    If `patient` is True, every signal is recorded. A process of torchrun should be patient, because
    torchrun and a cluster's scheduler may both send a signal. SIGHUP never raises an exception:
    when a terminal is closed, both the system and the shell may send it.
    """

    signum: int | None = None
    """Number of the last signal that was recorded; None until one is received."""

    def __init__(self, patient: bool = False):
        self.patient = patient

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Record a signal or, as `Interrupt` says, raise KeyboardInterrupt for a second one."""
        if self.signum is not None and not self.patient and signum != signal.SIGHUP:
            raise KeyboardInterrupt
        self.signum = signum


@contextmanager
def interruptible(patient: bool = False) -> Iterator[Interrupt]:
    """Yield an `Interrupt`, which handles SIGNALS in the `with` block; see `handled_by`.

    The first signal that comes is recorded, and does not end the process. `patient` is the argument
    of `Interrupt`.
    """
    interrupt = Interrupt(patient)
    with handled_by(interrupt.handle):
        yield interrupt


@contextmanager
def handled_by(
    handler: Callable[[int, FrameType | None], None],
    signals: Sequence[signal.Signals] = SIGNALS,
) -> Iterator[None]:
    """A context in which `handler` handles `signals`; only the main thread may enter it.

    SIGHUP stays ignored if it is ignored already, for example because of `nohup`. A signal that C
    code handles keeps its handler.
    """
    # getsignal returns None for a handler that C code has set; it could not be restored later.
    kept = {s for s in signals if signal.getsignal(s) is None}
    if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        kept.add(signal.SIGHUP)
    previous = {s: signal.signal(s, handler) for s in signals if s not in kept}
    try:
        yield
    finally:
        for signum, before in previous.items():
            signal.signal(signum, before)


@contextmanager
def signals_blocked() -> Iterator[None]:
    """Block SIGNALS for this thread in a `with` block, and for the processes that it starts there.

    If a signal comes within the block, the process reacts to the signal after the block. But if
    another thread of the process does not block the signal, the process reacts at once. In the
    started processes, the signals stay blocked.
    """
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # child processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
