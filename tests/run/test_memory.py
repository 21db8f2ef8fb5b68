"""Memory is counted by the operating system, and what was given back still counts as the peak."""

from pathlib import Path

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


def test_what_a_container_has_taken_is_not_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setattr("regard.run.memory.CGROUP", tmp_path)
    whole = free_bytes(CPU)
    (tmp_path / "memory.max").write_text("3000000\n")
    (tmp_path / "memory.current").write_text("2500000\n")
    (tmp_path / "memory.stat").write_text("anon 1900000\ninactive_file 600000\n")
    assert free_bytes(CPU) == 3_000_000 - 2_500_000 + 600_000
    (tmp_path / "memory.max").write_text("max\n")
    assert free_bytes(CPU) > whole / 2
