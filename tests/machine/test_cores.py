"""The cores of a machine, and those that a container may use."""

import os
from pathlib import Path

import pytest
import torch

from regard.machine import cores
from regard.machine.cores import started_together, usable_cores
from regard.machine.devices import set_threads


@pytest.mark.parametrize(
    ("files", "usable"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "400000 100000\n"}, 4),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "1000 100000\n"}, 1),
        ({"cpu.max": "9900000 100000\n"}, 8),
        ({"cpu.max": "unexpected"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_a_container_may_use_fewer_cores_than_there_are(
    files: dict[str, str], usable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "_CONTROL", tmp_path)
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert usable_cores() == usable


def test_an_empty_variable_is_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, processes in ("", 1), ("3", 3):
        monkeypatch.setenv("WORLD_SIZE", given)
        assert started_together() == processes


def test_threads_are_no_more_than_a_container_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        for share, threads in ((8, 4), (2, 2), (3, 2)):
            monkeypatch.setattr("regard.machine.devices.usable_cores", lambda share=share: share)
            set_threads(0)
            assert torch.get_num_threads() == threads
        set_threads(3)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
