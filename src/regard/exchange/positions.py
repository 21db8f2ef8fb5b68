"""Positional encodings of foreign models: stored tables, and the sinusoids of other programs."""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.exchange.weights import ForeignWeights
from regard.layers import sinusoids
from regard.recipe import Recipe


def refuse_other_sinusoids(weights: ForeignWeights, name: str, width: int, where: Path) -> None:
    """Raise ModelError if the table of positions `name` differs from the sinusoids of §3.5.

    The table is taken out of `weights`; if there is no such table, nothing happens. `width` is
    d_model, and `where` is the path that the error names.
    """
    if name not in weights:
        return
    table = weights.take_any(name)
    if table.shape[-1:] == (width,):
        rows = table.reshape(-1, width)
        if torch.allclose(rows, sinusoids(len(rows), width), rtol=0, atol=2e-3):
            return
    raise ModelError(f"{where}: {name} holds other positions than the sinusoids of §3.5")


def learned_positions(table: Tensor, recipe: Recipe) -> tuple[Tensor, dict[str, Any]]:
    """Return `table`, and the recipe fields of a model that uses `table` as learned positions.

    `table` is [positions, d_model]. The fields limit `max_length` to the number of positions.
    """
    longest = min(recipe.data.max_length, len(table))
    fields = {"positions": "learned", "max_positions": len(table), "max_length": longest}
    return table, fields


def tensor2tensor_sinusoids(length: int, d_model: int) -> Tensor:
    """[length, d_model] All sines, then all cosines, of pos / 10000^(i / (d_model / 2 - 1)).

    i is the number of the sine or of the cosine, from 0. tensor2tensor, marian-nmt and fairseq use
    this formula. In §3.5, the exponent is 2i / d_model. d_model must be even, and at least 4.
    """
    half = d_model // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(1e4) / (half - 1)))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1).float()
