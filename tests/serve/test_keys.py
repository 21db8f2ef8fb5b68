"""API keys and the rate limit."""

from pathlib import Path

import pytest

from regard.errors import DataError
from regard.serve import keys as module
from regard.serve.keys import Allowance, Keys


def test_keys_are_lines_of_a_file_without_their_comments(tmp_path: Path) -> None:
    text = "# ours\nalpha  # of the website\n\nbeta\n \t#old\nc#9#\t# of\n"
    (tmp_path / "keys").write_text(text)
    keys = Keys.read(tmp_path / "keys")
    assert len(keys) == 3
    assert all(keys.accepts(key) for key in ("alpha", "beta", "c#9#"))
    assert not any(keys.accepts(key) for key in ("gamma", "", "# ours", "c", "#old"))


def test_a_file_without_keys_is_refused(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# none yet\n")
    with pytest.raises(DataError, match="no API key"):
        Keys.read(tmp_path / "keys")


def test_to_ask_how_long_to_wait_counts_nothing() -> None:
    allowance = Allowance(1, clock=lambda: 0.0)
    assert [allowance.wait("a"), allowance.wait("a")] == [0.0, 0.0]
    assert allowance.take("a") == 0.0
    assert allowance.wait("a") == allowance.take("a") == 60.0


def test_requests_are_allowed_again_as_time_passes() -> None:
    now = 0.0
    allowance = Allowance(2, clock=lambda: now)
    assert [allowance.take("a") for _ in range(3)] == [0.0, 0.0, 30.0]
    assert allowance.take("b") == 0.0
    now = 30.0
    assert [allowance.take("a") for _ in range(2)] == [0.0, 30.0]
    now = 10_000.0  # unused requests are saved for one minute only
    assert [allowance.take("a") for _ in range(3)] == [0.0, 0.0, 30.0]


def test_of_too_many_clients_the_one_that_asked_longest_ago_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_CLIENTS", 2)
    allowance = Allowance(1, clock=lambda: 0.0)
    assert [allowance.take(client) for client in ("a", "b", "a", "c")] == [0.0, 0.0, 60.0, 0.0]
    assert [allowance.wait(client) for client in ("a", "b", "c")] == [60.0, 0.0, 60.0]
