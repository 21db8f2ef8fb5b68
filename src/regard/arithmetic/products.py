"""The matrix products of linear layers: by PyTorch, by cuBLAS with ReLU, or by oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from regard.arithmetic.cpu import Cpu

Multiply = Callable[[Tensor], Tensor]
"""A function from states, [tokens, d_model], to logits, [tokens, vocabulary]."""


class Products:
    """Linear layers by PyTorch, in any precision, on any device."""

    def linear(self, by: Any, x: Tensor, layers: tuple[nn.Linear, ...], relu: bool) -> Tensor:
        """x W^T + b of all layers, side by side in the last dimension; then ReLU if `relu`.

        x is [*batch, inputs]; the result is [*batch, outputs of all layers]. One matrix product
        computes all layers. `by` is the `Arithmetic` that calls this method.
        """
        y = F.linear(x, *joined(layers))
        return y.relu_() if relu else y

    def logits(self, by: Any, x: Tensor, embedding: nn.Embedding, bias: Tensor | None) -> Tensor:
        """x E^T, [*batch, vocabulary], plus `bias` if given; E is the matrix of `embedding`."""
        return F.linear(x, embedding.weight, bias)

    def to_logits(self, by: Any, embedding: Tensor, tokens: int) -> Multiply:
        """A function that multiplies at most `tokens` states by the transposed `embedding`.

        All calls of the function write to one block of memory, so each call overwrites the logits
        of the call before.
        """
        block = embedding.new_empty(tokens, len(embedding))
        return lambda states: torch.mm(states, embedding.t(), out=block[: len(states)])


class CublasProducts(Products):
    """Linear layers on a GPU: cuBLAS computes a layer's ReLU while it writes the layer's product.

    For NaN, this ReLU returns NaN, like PyTorch's own ReLU (tested on an H200).
    """

    def linear(self, by: Any, x: Tensor, layers: tuple[nn.Linear, ...], relu: bool) -> Tensor:
        """x W^T + b of all layers, side by side, by one product; then ReLU if `relu`."""
        weight, bias = self.joined(layers)
        return _LinearRelu.apply(x, weight, bias) if relu else F.linear(x, weight, bias)

    def joined(self, layers: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor]:
        """The weights of all layers in one tensor, and their biases in another."""
        return joined(layers)


class OneDnnProducts(Products):
    """Linear layers in bf16 on a CPU.

    PyTorch first copies the bias to every row of the output, and then adds the product to the rows.
    oneDNN adds the bias while it writes the product, and so passes over the output only once.
    """

    def linear(self, by: Any, x: Tensor, layers: tuple[nn.Linear, ...], relu: bool) -> Tensor:
        """x W^T + b of all layers, side by side, by one oneDNN product; then ReLU if `relu`."""
        y: Tensor = _OneDnnLinear.apply(by, x, *joined(layers), relu)
        return y


def joined(layers: tuple[nn.Linear, ...]) -> tuple[Tensor, Tensor]:
    """The weights of all layers in one tensor, and their biases in another.

    All these layers have the same input.
    """
    if len(layers) == 1:
        return layers[0].weight, layers[0].bias
    weights, biases = ([getattr(layer, name) for layer in layers] for name in ("weight", "bias"))
    return torch.cat(weights), torch.cat(biases)


def linear_gradients(
    by: Cpu, gradient: Tensor, x: Tensor, y: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn the gradient of a layer's output into the gradients of x W^T + b, of W and of b.

    x is [*batch, inputs], and `gradient` is [*batch, outputs]. y is the layer's output,
    max(0, x W^T + b); it is None if the layer has no ReLU.
    """
    d_sum, d_bias = by.sum_gradients(gradient, y)
    # [*batch, features] -> [rows, features]
    d_rows, inputs = d_sum.reshape(-1, len(d_bias)), x.reshape(-1, x.shape[-1])
    return d_sum, d_rows.t() @ inputs, d_bias


class _LinearRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        # [*batch, features] -> [rows, features]
        y = torch._addmm_activation(bias, x.reshape(-1, x.shape[-1]), weight.t())
        y = y.view(*x.shape[:-1], len(bias))
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, weight, y = ctx.saved_tensors
        d_sum = gradient.masked_fill(y == 0, 0.0)
        d_rows = d_sum.reshape(-1, d_sum.shape[-1])
        d_weight = d_rows.t() @ x.reshape(-1, x.shape[-1])
        return d_sum @ weight, d_weight, d_rows.sum(0)


class _OneDnnLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, by: Any, x: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
        if relu:
            y.relu_()  # oneDNN's own ReLU would turn NaN into 0
        ctx.by = by
        ctx.save_for_backward(x, weight, y if relu else None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        d_sum, d_weight, d_bias = linear_gradients(ctx.by, gradient, x, y)
        return None, d_sum @ weight, d_weight, d_bias, None
