"""A first signal is recorded; a second ends the program."""

import os
import signal
from typing import Any

import pytest

from regard.machine.interrupt import SIGNALS, Interrupted, interruptible


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_noted_and_a_second_one_obeyed(signum: int) -> None:
    with interruptible() as interrupt:
        assert interrupt.signum is None
        os.kill(os.getpid(), signum)
        assert interrupt.signum == signum
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signum)


def test_a_closed_terminal_may_send_its_signal_again() -> None:
    with interruptible() as interrupt:
        for signum in (signal.SIGHUP, signal.SIGHUP):
            os.kill(os.getpid(), signum)
            assert interrupt.signum == signal.SIGHUP


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupt.signum is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_handlers_are_put_back_whatever_happens() -> None:
    before = [signal.getsignal(s) for s in SIGNALS]
    with pytest.raises(ZeroDivisionError), interruptible():
        assert signal.getsignal(signal.SIGINT) != before[0]
        raise ZeroDivisionError
    assert [signal.getsignal(s) for s in SIGNALS] == before


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_the_exit_status_is_the_shells(signum: int, status: int) -> None:
    stopped = Interrupted(signum, step=17)
    assert stopped.status == status
    assert "step 17" in str(stopped)
    assert not isinstance(stopped, Exception)  # so that `except Exception` does not catch it


def test_a_handler_that_is_not_of_python_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[int] = []
    usual = signal.signal

    def install(signum: int, handler: Any) -> Any:
        handled.append(signum)
        return usual(signum, handler)

    found = signal.getsignal
    monkeypatch.setattr(signal, "getsignal", lambda s: None if s == signal.SIGTERM else found(s))
    monkeypatch.setattr(signal, "signal", install)
    with interruptible():
        pass
    assert signal.SIGINT in handled
    assert signal.SIGTERM not in handled
