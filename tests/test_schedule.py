"""§5.3: the rise, the peak and the fall of the learning rate."""

import pytest

from regard.schedule import learning_rate


def test_base_peaks_at_step_4000() -> None:
    rates = {step: learning_rate(step, 512, 4000) for step in range(1, 20001)}
    assert max(rates, key=rates.__getitem__) == 4000
    assert f"{rates[4000]:.2e}" == "6.99e-04"


def test_rises_linearly_and_falls_as_the_inverse_root() -> None:
    assert learning_rate(3, 7, 100) == pytest.approx(3 * learning_rate(1, 7, 100))
    assert learning_rate(400, 7, 100) == pytest.approx(learning_rate(100, 7, 100) / 2)
    assert learning_rate(100, 4 * 7, 100) == pytest.approx(learning_rate(100, 7, 100) / 2)


@pytest.mark.parametrize("step", [3, 400])
def test_a_factor_multiplies_it_at_every_step(step: int) -> None:
    assert learning_rate(step, 7, 100, 2.5) == pytest.approx(2.5 * learning_rate(step, 7, 100))
