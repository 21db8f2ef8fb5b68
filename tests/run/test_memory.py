"""Memory is counted by the operating system, and what was given back still counts as the peak."""

import pytest
import torch

from regard.run.devices import keep_freed_memory
from regard.run.memory import free_bytes, peak_bytes, restart_peak

CPU = torch.device("cpu")
SIZE = 200_000_000


def test_the_peak_is_the_most_at_once_since_it_was_restarted() -> None:
    keep_freed_memory()
    for _ in range(2):  # what the first has given back is not hidden from the second
        before = restart_peak(CPU)
        torch.ones(SIZE, dtype=torch.uint8)
        assert 0.9 * SIZE < peak_bytes(CPU) - before < 1.5 * SIZE
    assert restart_peak(CPU) < before + SIZE / 2
    assert peak_bytes(CPU) < before + SIZE / 2


def test_what_is_free_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    free = free_bytes(CPU)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert 0.5 * free < 4 * free_bytes(CPU) < 2 * free  # others take memory meanwhile
