"""Linear layers for inference, whose weights are arranged once for the matrix kernels.

In `F.linear` on a CPU, oneDNN rearranges the weight at every call. `LaidOut` rearranges the weights
once, when a model is opened. `Int8Linear` also rounds the weight to 8 bits, with a scale for each
output. VNNI instructions multiply these integers twice as fast as bf16 numbers. On a GPU, `Joined`
only joins the weights of layers that have the same input.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int8, UInt8
from torch import Tensor, nn

from regard.arithmetic.products import CublasProducts, Products, joined
from regard.attention import MultiHeadAttention

LARGEST = 127
"""The largest signed 8-bit integer. Numbers are rounded to integers from -LARGEST to LARGEST."""
# TOP_BIT and TINY are tensors: each operation would turn a Python number into a new tensor.
TOP_BIT = torch.tensor(128, dtype=torch.uint8)
TINY = torch.tensor(1e-30)  # TINY is added to each scale, so that no scale is 0


class PackedLinear:
    """A layer that computes x W^T + b in the precision of W; oneDNN packs W once."""

    def __init__(self, weight: Float[Tensor, "outputs inputs"], bias: Tensor | None = None):
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.bias = None if bias is None else bias.detach()

    def __call__(
        self, by: Any, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b, or max(0, x W^T + b) with `relu`."""
        y = self.product(x)
        return y.relu_() if relu else y  # oneDNN's own ReLU would turn NaN into 0

    def product(self, x: Tensor) -> Tensor:
        """x W^T + b."""
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


class Int8Linear:
    """A layer that computes x W^T + b with x and W rounded to 8 bits.

    Each row of x and of W is divided by a scale before it is rounded. With this scale, the largest
    absolute value in a row of x becomes 127, and the largest absolute value in a row of W becomes
    `largest` (None means `largest_weight()`). If `largest` is at most `largest_weight()`, sums are
    exact in int32, so rounding is the only error.
    """

    def __init__(
        self,
        weight: Float[Tensor, "outputs inputs"],
        bias: Tensor | None = None,
        largest: int | None = None,
    ):
        weight = weight.detach().float()
        self.scale = _scale(weight.abs().amax(1), largest or largest_weight())
        rounded = (weight / self.scale[:, None]).round_().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zero = torch.zeros(len(weight), dtype=torch.int64)
        self.bias = None if bias is None else bias.detach().float()

    def __call__(
        self, by: Any, x: Float[Tensor, "*batch inputs"], relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b of fp32 states x, with the errors of rounding; then ReLU if `relu`."""
        rounded, scale = by.round_unsigned(x)
        return by.scale_rows(self.product(rounded), scale, self.bias, relu)

    def product(self, rounded: UInt8[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        """The product of rounded states and W; the caller must multiply each row by its scale."""
        y: Tensor = torch.ops.onednn.qlinear_pointwise(
            rounded, 1.0, 128, self.weight, self.scale, self.zero, None,
            1.0, 0, torch.float32, "none", [], "",
        )  # fmt: skip
        return y


Layout = PackedLinear | Int8Linear
LayOut = Callable[[Tensor, Tensor | None], Layout]
"""A function that makes a `Layout` of a weight and a bias; the bias may be None."""


class Dense(NamedTuple):
    """A layer's weight and bias, not packed by oneDNN; the layer computes (x W) * scale + b."""

    weight: Float[Tensor, "inputs outputs"] | Int8[Tensor, "inputs outputs"]
    """The weight, in the model's precision or rounded to 8 bits."""
    scale: Float[Tensor, " outputs"]
    """The scale of each output; all scales are 1 unless the weight is rounded."""
    bias: Float[Tensor, " outputs"]


class LaidOut(Products):
    """The linear layers of a model, arranged for inference by `lay_out`.

    The weights and biases of linear layers are deleted from the `EncoderDecoder` `model`, which
    can then compute only by these products. The logits are x E^T + `bias`, where E is the weight of
    `output`. E is copied and not deleted, because the model may also embed tokens with E.
    """

    def __init__(
        self,
        model: Any,
        output: nn.Embedding,
        lay_out: LayOut,
        bias: Tensor | None = None,
    ):
        self.layouts: dict[tuple[nn.Module, ...], Layout] = {
            layers: lay_out(*joined(layers)) for layers in multiplied_together(model)
        }
        for layer in {layer for layers in self.layouts for layer in layers}:
            del layer.weight, layer.bias
        self.layouts[output,] = lay_out(output.weight, bias)

    def dense(self, layers: tuple[nn.Module, ...]) -> Dense:
        """The joined weight and bias of these layers, not packed; 8-bit weights stay rounded."""
        layout = self.layouts[layers]
        weight = layout.weight.to_dense()
        if isinstance(layout, Int8Linear):
            scale = layout.scale  # an 8-bit weight is [inputs, outputs] already
        else:
            weight, scale = weight.t(), torch.ones(len(weight))
        bias = torch.zeros(len(scale)) if layout.bias is None else layout.bias.float()
        return Dense(weight, scale, bias)

    def linear(self, by: Any, x: Tensor, layers: tuple[nn.Linear, ...], relu: bool) -> Tensor:
        """x W^T + b of all layers, side by side, by one product; then ReLU if `relu`."""
        return self.layouts[layers](by, x, relu)

    def logits(self, by: Any, x: Tensor, embedding: nn.Embedding, bias: Tensor | None) -> Tensor:
        """x E^T, plus the bias that the constructor got; the argument `bias` is ignored."""
        return self.layouts[embedding,](by, x)


class Joined(CublasProducts):
    """The linear layers of a trained model on a GPU; their weights no longer change.

    Layers with the same input, such as W_q, W_k and W_v, are computed as one product. Their weights
    are joined into one matrix here, so that no product has to join them again.
    """

    def __init__(self, model: Any):
        """`model` is an `EncoderDecoder`."""
        self._together = {
            layers: joined(layers) for layers in multiplied_together(model) if len(layers) > 1
        }

    def joined(self, layers: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor]:
        """The weights of all layers in one tensor, and their biases in another."""
        return self._together.get(layers) or joined(layers)


def multiplied_together(model: Any) -> list[tuple[nn.Linear, ...]]:
    """The linear layers of an `EncoderDecoder`, in groups; one matrix product computes a group.

    W_q, W_k and W_v of a self-attention are one group. In attention to the encoder's output, only
    W_k and W_v are one group, because the queries have another input. Every other layer is a group
    of its own.
    """
    crossing = {id(module) for module in model.attentions().get("cross", ())}
    groups: list[tuple[nn.Linear, ...]] = []
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            keys_values = module.W_k, module.W_v
            groups += [keys_values] if id(module) in crossing else [(module.W_q, *keys_values)]
    grouped = {id(layer) for group in groups for layer in group}
    single = [m for m in model.modules() if isinstance(m, nn.Linear) and id(m) not in grouped]
    return groups + [(layer,) for layer in single]


def round_unsigned(
    x: Float[Tensor, "*batch inputs"],
) -> tuple[UInt8[Tensor, "*batch inputs"], Float[Tensor, "*batch 1"]]:
    """Round x to integers n from -127 to 127, so that n * scale is nearly x.

    Returns n + 128 for each entry of x, and a scale for each row. 128 is added because the fast
    kernel takes only unsigned activations.
    """
    largest = torch.maximum(x.amax(-1, keepdim=True), x.amin(-1, keepdim=True).neg_())
    scale = _scale(largest, LARGEST)
    # Flipping the top bit of a signed 8-bit number adds 128.
    return (x / scale).round_().to(torch.int8).view(torch.uint8).bitwise_xor_(TOP_BIT), scale


def scale_rows(y: Tensor, scale: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
    """y * scale + bias, in place; then ReLU if `relu`.

    y is [*batch, outputs], `scale` is [*batch, 1], and `bias` is [outputs].
    """
    y = y.mul_(scale) if bias is None else torch.addcmul(bias, y, scale, out=y)
    return y.relu_() if relu else y


def _scale(entry: Tensor, rounded: int) -> Tensor:
    """A scale that is never 0; entry / scale is nearly `rounded`, or 0 if `entry` is 0."""
    return torch.add(TINY, entry, alpha=1 / rounded)


@cache
def largest_weight() -> int:
    """The largest rounded weight with which `Int8Linear` has exact sums; 0 if there is none.

    The result is 127 with VNNI instructions. On older x86 processors, the result is 64, because
    they add pairs of products in signed 16 bits, which can hold 2 x 255 x 64.
    """
    return next(filter(_is_exact, (LARGEST, 64)), 0)


def has_vnni() -> bool:
    """Whether 8-bit products are exact with weights up to 127, as on an x86 processor with VNNI."""
    return largest_weight() == LARGEST


def _is_exact(largest: int) -> bool:
    try:
        ones = torch.ones(16, 64)
        layer = Int8Linear(ones, largest=largest)
        rounded, scale = round_unsigned(ones)
        return bool((scale_rows(layer.product(rounded), scale, None, False) == 64).all())
    except (RuntimeError, NotImplementedError):
        return False
