"""Memory as the operating system counts it; memory that was freed still counts for the peak."""

import os
from pathlib import Path

import pytest
import torch

from regard.errors import TrainingError
from regard.machine.devices import keep_freed_memory, refuse_too_large
from regard.machine.memory import all_bytes, free_bytes, peak_bytes, restart_peak

CPU = torch.device("cpu")
SIZE = 200_000_000


def test_the_peak_is_the_most_at_once_since_it_was_restarted() -> None:
    keep_freed_memory()
    for _ in range(2):  # memory that malloc kept from the first round must not hide the second
        before = restart_peak(CPU)
        torch.ones(SIZE, dtype=torch.uint8)
        assert 0.9 * SIZE < peak_bytes(CPU) - before < 1.5 * SIZE
    assert restart_peak(CPU) < before + SIZE / 2
    assert peak_bytes(CPU) < before + SIZE / 2


def test_what_is_free_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "")  # an empty variable is as none
    free = free_bytes(CPU)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert 0.5 * free < 4 * free_bytes(CPU) < 2 * free  # other programs take memory meanwhile


FILES = {
    "v2": ("0::{}", "", "memory.max", "memory.current", "inactive_file"),
    "v1": (
        "5:cpu,cpuacct:/else\n4:memory:{}\n0::/",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file",
    ),
}


@pytest.mark.parametrize("version", FILES)
@pytest.mark.parametrize(
    ("member", "groups"),
    [
        ("/", {"": 3_000_000}),  # as seen inside a container
        ("/jobs/7/step", {"jobs/7": 3_000_000, "jobs": 4_000_000, "jobs/7/step": None}),
        ("/on/the/host", {"": 3_000_000}),  # a container that sees its path on the host
    ],
)
def test_what_bounds_a_container_or_a_job_is_all_there_is(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str,
    member: str,
    groups: dict[str, int | None],
) -> None:
    line, folder, *names, cached = FILES[version]
    (tmp_path / "membership").write_text(line.format(member) + "\n")
    for group, bound in groups.items():
        path = tmp_path / folder / group
        path.mkdir(parents=True, exist_ok=True)
        (path / names[0]).write_text(f"{bound or 'max'}\n")
        (path / names[1]).write_text("2500000\n")
        (path / "memory.stat").write_text(f"anon 1900000\n{cached} 600000\n")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setattr("regard.machine.memory.MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr("regard.machine.memory.CGROUPS", tmp_path)
    assert all_bytes(CPU) == 3_000_000
    assert free_bytes(CPU) == 3_000_000 - 2_500_000 + 600_000
    with pytest.raises(TrainingError, match=r"takes 0\.0 GB to train, and there are 0\.0 GB"):
        refuse_too_large(1_000_000, CPU)


def test_without_a_bound_there_is_what_the_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.machine.memory.MEMBERSHIP", tmp_path / "none")
    assert all_bytes(CPU) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_bytes(CPU) <= all_bytes(CPU)
