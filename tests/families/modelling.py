"""Small models of every family, and sentences for them."""

from typing import Any

import torch
from torch import nn

from regard.data.rows import Rows, one_per_row
from regard.encoder_decoder import EncoderDecoder
from regard.families.choose import FAMILIES, new_model
from regard.recipe import ModelRecipe

OTHERS = [family for family in FAMILIES if family != "transformer"]
"""The families beside the paper's."""
VOCABULARY = 29


def sizes(family: str, **changes: Any) -> ModelRecipe:
    """A small recipe; no two of its sizes are equal."""
    small = {"layers": 3, "decoder_layers": 6, "d_model": 12, "kernel": 4, "dropout": 0.0}
    return ModelRecipe(family=family, **(small | changes))


def model_of(family: str, **changes: Any) -> EncoderDecoder:
    """A model whose biases are away from their neutral start."""
    torch.manual_seed(1)
    model = new_model(sizes(family, **changes), VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.1 * torch.randn_like(parameter)
    return model.eval()


def sentences(lengths: list[int], seed: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


def rows(lengths: list[int], seed: int) -> Rows:
    return one_per_row(sentences(lengths, seed))


def gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
