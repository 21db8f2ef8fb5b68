"""A row changes any base model as the paper's row changes the paper's."""

import pytest

from regard.paper import BASE, TABLE_3
from regard.presets import SMALL
from regard.reproduce.rows import scaled
from regard.reproduce.scales import MINI_BASE


@pytest.mark.parametrize("row", TABLE_3)
def test_at_the_papers_size_rows_are_the_papers(row: str) -> None:
    """How often a row is validated is not part of Table 3."""
    assert scaled(row, BASE).but(validate_every=1) == TABLE_3[row].but(validate_every=1)


MINI = {
    "base": {},
    "A1": {"heads": 1, "d_k": 128, "d_v": 128},
    "A2": {"heads": 4, "d_k": 32, "d_v": 32},
    "A3": {"heads": 16, "d_k": 8, "d_v": 8},
    "A4": {"heads": 32, "d_k": 4, "d_v": 4},
    "B1": {"d_k": 4},
    "B2": {"d_k": 8},
    "C1": {"layers": 1},
    "C2": {"layers": 2},
    "C3": {"layers": 4},
    "C4": {"d_model": 64, "d_k": 8, "d_v": 8},
    "C5": {"d_model": 256, "d_k": 32, "d_v": 32},
    "C6": {"d_ff": 256},
    "C7": {"d_ff": 1024},
    "D1": {"dropout": 0.0},
    "D2": {"dropout": 0.2},
    "D3": {"label_smoothing": 0.0},
    "D4": {"label_smoothing": 0.2},
    "E": {"positions": "learned", "max_positions": 64 + 50},
    "big": {"d_model": 256, "d_ff": 1024, "heads": 16, "d_k": 16, "d_v": 16, "dropout": 0.3,
            "steps": 3 * MINI_BASE.training.steps, "validate_every": 3 * MINI_BASE.training.steps},
}  # fmt: skip


@pytest.mark.parametrize("row", TABLE_3)
def test_mini(row: str) -> None:
    assert scaled(row, MINI_BASE) == MINI_BASE.but(**MINI[row])


@pytest.mark.parametrize("row", TABLE_3)
def test_four_heads_in_the_place_of_eight(row: str) -> None:
    """h d_k stays where the paper's row has it, whatever the heads of base."""
    found, paper = scaled(row, SMALL).model, TABLE_3[row].model
    ratio = paper.heads * paper.d_k / (BASE.model.heads * BASE.model.d_k)
    assert found.heads * found.d_k == ratio * SMALL.model.heads * SMALL.model.d_k
    assert found.heads == max(1, paper.heads // 2)
