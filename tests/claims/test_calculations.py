"""The claims that are calculated, and that each calculation could come out otherwise."""

import math
from functools import cache
from pathlib import Path

import pytest
import torch

from regard.claims import calculations, exact
from regard.claims.calculations import rotation
from regard.claims.parts import Evidence, Part, Size
from regard.claims.registry import CLAIMS
from regard.layers import sinusoids
from regard.parts.kept import Measured
from regard.parts.verdicts import Judgement

SEEDS = (1, 2)


@cache
def computed(part: Part, seed: int) -> Measured:
    return part.run(seed, Path(), Size())


def findings(name: str) -> dict[str, Judgement]:
    claim = CLAIMS[name]
    numbers = {(part.name, seed): computed(part, seed) for part in claim.parts for seed in SEEDS}
    return {f.name: f.verdict for f in claim.judge(Evidence(numbers, SEEDS))}


@pytest.mark.parametrize("name", ["positions", "convolutions", "gradients", "head-costs"])
def test_what_is_calculated_holds(name: str) -> None:
    assert set(findings(name).values()) == {Judgement.HOLDS}


def test_a_rotation_by_hand() -> None:
    """For d_model 2 the rate is 1: sin(1 + 2) = cos(2) sin(1) + sin(2) cos(1)."""
    turned = rotation(2, 2) @ torch.tensor([math.sin(1), math.cos(1)], dtype=torch.float64)
    assert turned.tolist() == pytest.approx([math.sin(3), math.cos(3)])
    product = rotation(3, 8) @ rotation(5, 8)
    torch.testing.assert_close(product, rotation(8, 8))


def test_one_matrix_moves_every_position() -> None:
    """R_k is what least squares finds, too, from positions alone."""
    table = sinusoids(200, 6).double()
    found = torch.linalg.lstsq(table[:-7], table[7:]).solution.T
    torch.testing.assert_close(found, rotation(7, 6), rtol=0, atol=1e-4)


def test_no_linear_map_moves_a_random_table() -> None:
    assert computed(CLAIMS["positions"].parts[0], 1)["random_error"] > 1 > exact.ROUNDING_FP32


def test_variances_are_those_of_d_k(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calculations, "_PAIRS", 20_000)
    numbers = calculations.variances(1)
    for name in calculations.DISTRIBUTIONS:
        for d_k in (16, 64, 256):
            assert numbers[f"{name}_{d_k}"] == pytest.approx(1, abs=0.06)
            assert numbers[f"{name}_mean_{d_k}"] == pytest.approx(0, abs=0.03)
    assert numbers["apart"] == pytest.approx(1, abs=0.1)
    assert numbers["joined"] == pytest.approx(1 / 4, abs=0.05)  # q and k are smaller by sqrt 2


def test_gradients_of_the_softmax_are_those_of_autograd() -> None:
    scores = torch.tensor([0.3, -1.2, 2.0])
    jacobian = torch.autograd.functional.jacobian(lambda x: x.softmax(0), scores)
    p = scores.softmax(0)
    torch.testing.assert_close(jacobian, torch.diag(p) - p[:, None] * p[None, :])


def test_heads_are_counted_by_hand() -> None:
    """Four projections of 64 x 512 x 512 and two products of 64 x 64 x 512 multiply-adds."""
    counted = computed(CLAIMS["head-costs"].parts[0], 1)["counted_8"]
    assert counted == 2 * (4 * 64 * 512 * 512 + 2 * 64 * 64 * 512)


def test_additive_attention_keeps_d_k_numbers_for_each_pair() -> None:
    numbers = calculations.score_costs(1)
    for d_k in (16, 64, 256):
        hidden = 4 * 8 * 64 * 64 * d_k / 1e6
        assert hidden < numbers[f"additive_MB_{d_k}"] < 2.5 * hidden
        assert numbers[f"dot_MB_{d_k}"] < numbers[f"additive_MB_{d_k}"] / 5
