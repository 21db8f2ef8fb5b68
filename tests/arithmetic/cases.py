"""Every arithmetic in every precision that it has, and how near it comes to fp64."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

from regard.arithmetic.choose import can_pack, can_use_loops
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.cuda import Cuda, adam_in_one_pass
from regard.arithmetic.exact import BlockedLinear
from regard.arithmetic.inference import ExactInference, Inference
from regard.arithmetic.int8 import Int8Products, has_int8_training
from regard.arithmetic.layouts import Int8Linear, Joined, LaidOut, PackedLinear, largest_weight
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import OneDnnProducts, Products
from regard.attention import MultiHeadAttention
from regard.equations import Arithmetic

FP32, BF16 = torch.float32, torch.bfloat16
NEAR = {FP32: 1e-5, BF16: 0.02}
"""The relative error of what is computed in this precision."""
NEAR_INT8 = 0.03
"""The relative error of what is computed by products of 8 bits."""

NUMBA, ONEDNN, ONEDNN_BF16 = "Numba", "oneDNN", "oneDNN in bf16"
INT8, SIGNED_INT8 = "exact products of 8 bits", "exact products of signed 8 bits"
HAS: dict[str, Callable[[], bool]] = {
    NUMBA: can_use_loops,
    ONEDNN: lambda: can_pack(FP32),
    ONEDNN_BF16: lambda: can_pack(BF16),
    INT8: lambda: can_pack(FP32) and largest_weight() > 0,
    SIGNED_INT8: has_int8_training,
}

HEADS, D_K, D_V, D_MODEL, VOCABULARY = 2, 5, 7, 11, 23
WIDTH = 3
"""The state of an LSTM."""


class Layers(nn.Module):
    """What has weights in a model; linear layers keep the deviation of what they are given."""

    def __init__(self, d_model: int = D_MODEL, d_ff: int = 13):
        super().__init__()
        self.attention = MultiHeadAttention(d_model, HEADS, D_K, D_V)
        self.cross_attention = MultiHeadAttention(d_model, HEADS, D_K, D_V)
        self.inner = nn.Linear(d_model, d_ff)
        self.norm = nn.LayerNorm(d_model, eps=1e-6)
        self.tokens = nn.Embedding(VOCABULARY, d_model)
        self.of_input, self.of_state = nn.Linear(d_model, 4 * WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        for parameter in self.parameters():
            nn.init.normal_(parameter)
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        """The attention whose keys come from other states than its queries."""
        return {"cross": [self.cross_attention]}


class NoLayers(nn.Module):
    """A model for equations that need no weights but the embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, D_MODEL)

    def attentions(self) -> dict[str, list[MultiHeadAttention]]:
        return {}


class Case(NamedTuple):
    """An arithmetic, and the precision of its model."""

    name: str
    make: Callable[[nn.Module, nn.Embedding], Arithmetic]
    """Makes it for a model, whose layers it may lay out, and for its embeddings."""
    dtype: torch.dtype
    near: float
    """The relative error that is allowed."""
    needs: tuple[str, ...] = ()
    """What the machine must have; see `HAS`."""
    learns: bool = False
    """Whether its equations have gradients."""

    def __str__(self) -> str:
        return f"{self.name} {str(self.dtype).removeprefix('torch.')}"

    def by(self) -> Arithmetic:
        """The arithmetic, for a model of its own."""
        layers = NoLayers().to(self.dtype)
        return self.make(layers, layers.tokens)


def skip_without(*needs: str) -> None:
    """Skip a test on a machine that lacks one of these."""
    for need in needs:
        if not HAS[need]():
            pytest.skip(f"no {need} on this machine")


def training(products: Products, loops: bool = False, *given: Any) -> Any:
    """The arithmetic of training on a CPU, by PyTorch's operations or by loops."""
    return (_one_core().OneCore if loops else Cpu)(products, *given)


def inference(products: Products, loops: bool = False, *given: Any) -> Any:
    """The arithmetic of inference on a CPU, by PyTorch's operations or by loops."""
    return (_one_core().OneCoreInference if loops else Inference)(products, *given)


def _one_core() -> Any:
    return import_module("regard.arithmetic.one_core")  # it loads Numba


def of_a_gpu(learning: bool = True) -> Cuda:
    """The arithmetic of a GPU; what it would compile for one is not compiled."""
    by = Cuda(learning=learning)
    by._one_pass = adam_in_one_pass
    return by


def every_case() -> Iterator[Case]:
    """All arithmetics that `arithmetic.choose` may select, and some more."""
    for dtype, near in NEAR.items():
        yield Case("Plain", lambda *_: PLAIN, dtype, near, learns=True)
        yield Case("Cuda", lambda *_: of_a_gpu(), dtype, near, learns=True)
        yield Case("Cuda for inference", lambda *_: of_a_gpu(learning=False), dtype, near)
        yield Case("Cuda for decoding", _of_a_decoding_gpu, dtype, near)
        for loops in False, True:
            yield from _for_training(loops, dtype)
            yield from _for_inference(loops, dtype)
    yield Case("ExactInference blocks", partial(_exact, BlockedLinear), FP32, NEAR[FP32], (ONEDNN,))
    yield Case("ExactInference int8", partial(_exact, Int8Linear), FP32, NEAR_INT8, (INT8,))


def _of_a_decoding_gpu(model: nn.Module, _: nn.Embedding) -> Cuda:
    return Cuda(learning=False, products=Joined(model))


def _for_training(loops: bool, dtype: torch.dtype) -> Iterator[Case]:
    name, numba = ("OneCore", (NUMBA,)) if loops else ("Cpu", ())
    kinds: list[tuple[type[Products], float, tuple[str, ...]]] = [
        (Products, NEAR[dtype], ()),
        (Int8Products, NEAR_INT8, (SIGNED_INT8,)),
    ]
    if dtype == BF16:
        kinds.append((OneDnnProducts, NEAR[BF16], (ONEDNN_BF16,)))
    for kind, near, needs in kinds:
        make = partial(lambda kind, *_: training(kind(), loops), kind)
        yield Case(f"{name} {kind.__name__}", make, dtype, near, numba + needs, learns=True)


def _for_inference(loops: bool, dtype: torch.dtype) -> Iterator[Case]:
    name, numba = ("OneCoreInference", (NUMBA,)) if loops else ("Inference", ())
    onednn = (*numba, ONEDNN_BF16 if dtype == BF16 else ONEDNN)
    yield Case(name, lambda *_: inference(Products(), loops), dtype, NEAR[dtype], numba)
    if dtype == BF16:
        make = partial(lambda *_: inference(OneDnnProducts(), loops))
        yield Case(f"{name} OneDnnProducts", make, dtype, NEAR[dtype], onednn)
    for layout in PackedLinear, BlockedLinear:
        make = partial(_laid_out, layout, loops, None)
        yield Case(f"{name} {layout.__name__}", make, dtype, NEAR[dtype], onednn)
    make = partial(_laid_out, Int8Linear, loops, dtype)
    yield Case(f"{name} int8 keeping {dtype}", make, FP32, NEAR_INT8, (*numba, INT8))


def _laid_out(
    layout: Any, loops: bool, keep_in: torch.dtype | None, model: nn.Module, tokens: nn.Embedding
) -> Any:
    return inference(LaidOut(model, tokens, layout, _bias(model)), loops, keep_in)


def _exact(layout: Any, model: nn.Module, tokens: nn.Embedding) -> Arithmetic:
    products = LaidOut(model, tokens, layout, _bias(model))
    return ExactInference(products, {(HEADS, D_K, D_V)})


def _bias(model: nn.Module) -> torch.Tensor | None:
    return getattr(model, "output_bias", None)
