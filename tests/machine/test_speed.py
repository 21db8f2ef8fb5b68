"""The measured speed is that of products in fp32, and is measured once."""

from typing import Any

import pytest
import torch

from regard.machine.speed import PRODUCTS, SIZE, single_precision_speed


def test_it_is_that_of_the_fastest_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 3.0, 10.0, 10.2, 20.0, 20.1, 30.0, 30.4, 40.0, 40.2])  # 3 s, 0.2, 0.1, ...
    formats: list[tuple[str, int]] = []

    def product(*_: torch.Tensor) -> None:
        formats.append((torch.get_float32_matmul_precision(), torch.get_num_threads()))

    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    monkeypatch.setattr("torch.mm", product)
    before, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    single_precision_speed.cache_clear()
    try:
        torch.set_float32_matmul_precision("medium")
        speed = single_precision_speed(torch.device("cpu"), 3)
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.get_num_threads() == threads
        assert single_precision_speed(torch.device("cpu"), 3) == speed  # no times are left
    finally:
        torch.set_float32_matmul_precision(before)
        single_precision_speed.cache_clear()
    assert speed == pytest.approx(2 * SIZE["cpu"] ** 3 / 0.1)
    assert formats == [("highest", 3)] * (1 + PRODUCTS)


def test_this_processor_multiplies_at_a_credible_speed() -> None:
    assert 1e8 < single_precision_speed(torch.device("cpu")) < 1e14


def test_with_little_memory_the_matrices_are_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    sides, ones = [], torch.ones

    def little(*size: int, **options: Any) -> torch.Tensor:
        sides.append(size[0])
        if size[0] > 300:
            raise torch.OutOfMemoryError("no room")
        return ones(*size, **options)

    monkeypatch.setattr("torch.ones", little)
    single_precision_speed.cache_clear()
    try:
        assert 1e7 < single_precision_speed(torch.device("cpu")) < 1e14
    finally:
        single_precision_speed.cache_clear()
    assert sides == [1024, 512, 256, 256]
