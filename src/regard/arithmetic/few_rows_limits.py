"""Decide which batches, and which models, the compiled loops of `FewRows` decode."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from regard.arithmetic.layouts import has_vnni
from regard.arithmetic.loops.folder import can_keep_loops
from regard.attention import MultiHeadAttention
from regard.equations import Computing, FewRowsLimits
from regard.layers import AddNorm, Embedding, FeedForward
from regard.machine.devices import has_avx2
from regard.variants import HalvesEmbedding, SmoothFeedForward

LOOPED = {MultiHeadAttention, FeedForward, SmoothFeedForward, AddNorm, Embedding, HalvesEmbedding}
"""Classes of modules that `FewRows` can compute; `SmoothFeedForward` only with SiLU ("swish")."""
FEW_ROWS = FewRowsLimits(tokens=512, products=2 * 10**8)
"""The limits in bf16, and in int8 without AVX2, measured on two cores. `FewRows` decodes a batch on
one core. If a step of a text's largest batch has more multiplications than `products`, the model's
modules decode all batches of the text, on all cores."""
FEW_ROWS_IN_FP32 = FewRowsLimits(64, math.inf)
"""With weights in fp32, `FewRows` decodes all batches, so that a sentence has the same results in
any batch."""
FEW_ROWS_BY_VNNI, FEW_ROWS_BY_AVX2 = FewRowsLimits(64, 4 * 10**9), FewRowsLimits(64, 10**10)
"""The limits with 8-bit weights on x86 processors: with VNNI, and with AVX2 but without VNNI.
Batches may be small: Python runs only once in eight steps, so threads rarely wait for each other's
Python code."""


def few_rows_limits(precision: str, dtype: torch.dtype, exact: bool | None) -> FewRowsLimits | None:
    """The limits of the batches that `FewRows` decodes; None if the modules decode all batches.

    `precision` is "int8", or the precision of the weights, which have the dtype `dtype`. `exact` is
    as in `choose.for_decoding`. In bf16 and int8, the modules decode all batches unless `exact` is
    False. In fp32, the modules decode all batches if compiled loops cannot be kept on the disk:
    `FewRows` would spend most of a minute in each command to compile the loops again.
    """
    if precision != "int8" and dtype == torch.float32:
        return FEW_ROWS_IN_FP32 if can_keep_loops() else None
    if exact is not False:
        return None
    rounded = precision == "int8" and has_avx2()
    return FEW_ROWS if not rounded else FEW_ROWS_BY_VNNI if has_vnni() else FEW_ROWS_BY_AVX2


def suits_few_rows(model: Any) -> bool:
    """Whether a model is a Transformer whose layers `FewRows` can compute."""
    if not isinstance(getattr(model, "encoder_norm", None), nn.Identity):
        return False
    computing = [module for module in model.modules() if isinstance(module, Computing)]
    smooth = [module for module in computing if type(module) is SmoothFeedForward]
    return {type(module) for module in computing} - {type(model)} <= LOOPED and all(
        module.activation is F.silu for module in smooth
    )
