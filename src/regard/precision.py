"""Choose the precision for translating and parsing, and open models in this precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from regard.arithmetic.choose import (
    fastest_precision,
    for_decoding,
    refuse_int8,
    usual_precision,
)
from regard.errors import RecipeError
from regard.machine.devices import choose_device
from regard.run.model_directory import Model, open_model


def settled(precision: str) -> str:
    """`precision` itself or, for "auto" and "fastest", the precision that suits this machine.

    "auto" is bf16 if the device multiplies faster in bf16, else fp32; "fastest" is int8 if the
    device is an x86 CPU with AVX2, else as "auto". Raises RecipeError for an unknown precision and,
    for "auto" and "fastest", the errors of `choose_device`.
    """
    if precision not in ("fp32", "bf16", "int8", "auto", "fastest"):
        raise RecipeError(f"precision {precision}: it is fp32, bf16, int8, auto or fastest")
    choices = {"auto": usual_precision, "fastest": fastest_precision}
    return choices[precision](choose_device()) if precision in choices else precision


def open_to_decode(
    directory: str | Path, precision: str, exact: bool | None
) -> tuple[Model, bool | None]:
    """Open a model directory and lay out its weights for decoding on this machine.

    Returns the model and `exact`. If `exact` is None and the model computes in bf16 or int8, False
    is returned in place of None. `translation.load` explains the arguments. Raises RecipeError for
    an unknown precision, and for int8 on a device that is not an x86 processor; and the errors of
    `choose_device` and of `open_model`.
    """
    precision, device = settled(precision), choose_device()
    if precision == "int8":
        refuse_int8(device)
    if exact is None and precision != "fp32":
        exact = False
    model = open_model(directory, torch.bfloat16 if precision == "bf16" else torch.float32)
    network = model.network.to(device).requires_grad_(False)  # decoding needs no gradients
    network.compute_by(for_decoding(network, device, precision, exact))
    return replace(model, network=network), exact
