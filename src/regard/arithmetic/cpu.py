"""Training on a CPU by PyTorch's operations, with backward passes of our own."""

import torch
from torch import Tensor, nn

from regard.arithmetic import int8, layouts
from regard.arithmetic.attention import VECTOR, CpuAttention, CpuMask
from regard.arithmetic.dropout import keep_mask
from regard.arithmetic.fused import Fused
from regard.arithmetic.products import Products
from regard.arithmetic.residual import CpuAddNorm
from regard.cache import Cache
from regard.equations import Mask


class Cpu(Fused):
    """Computes every equation by PyTorch's operations; `products` computes the linear layers.

    Dropout masks are drawn from `generator`; None means PyTorch's default generator.
    """

    chunk = 1024
    """The loss computes the logits of at most this many tokens together. The logits of few tokens
    take little memory, and fit the processor's caches better."""
    logits_at_once = 2**20
    """`summarize` reads at most this many logits at a time (4 MiB in fp32), but at least a row."""

    def __init__(self, products: Products, generator: torch.Generator | None = None):
        self.products, self.generator = products, generator

    def mask(self, allowed: Tensor) -> Mask:
        """A mask that holds `allowed` as a bias, which is added to the scores."""
        return CpuMask(allowed)

    def cache(self, keys: Tensor, values: Tensor) -> Cache:
        """A cache whose number of slots, used and unused, is a multiple of `VECTOR`."""
        return Cache(keys, values, VECTOR)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1) by batched matrix products."""
        output: Tensor = CpuAttention.apply(self, query, key, value, mask, dropout)
        return output

    def add_norm(self, x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
        """Add & Norm as one operation."""
        out: Tensor = CpuAddNorm.apply(self, x, y, norm.weight, norm.bias, norm.eps, dropout)
        return out

    def drop(self, x: Tensor, dropout: float) -> Tensor:
        """Dropout(x), with the mask that `keep_mask` draws."""
        return x * self.keep_mask(x, dropout) / (1 - dropout) if dropout else x

    def logits(self, x: Tensor, embedding: nn.Embedding, bias: Tensor | None = None) -> Tensor:
        """x E^T, plus `bias` if given; E is the matrix of `embedding`."""
        return self.products.logits(self, x, embedding, bias)

    # The equations above call the methods below between matrix products. `one_core.Loops` overrides
    # all methods below except `keep_mask`, and computes them by loops.

    def keep_mask(self, x: Tensor, dropout: float) -> Tensor:
        """A mask of the shape of x: 0 with the probability `dropout`, else 1."""
        return keep_mask(x, dropout, self.generator)

    def attention_weights(
        self, scores: Tensor, bias: Tensor, factor: float, dropout: float
    ) -> Tensor:
        """softmax(scores * factor + bias), in fp32, before dropout.

        `scores` is [rows, heads, queries, keys]; `bias` is [rows or 1, 1, queries or 1, keys].
        `dropout` has no effect here. In the subclass `Loops`, the result has the precision of
        `scores` if `dropout` is 0.
        """
        return torch.add(bias, scores, alpha=factor).softmax(-1)

    def attention_weights_backward(
        self, gradient: Tensor, weights: Tensor, factors: Tensor | None, factor: float
    ) -> Tensor:
        """The gradient of the scores: P * (dP - sum(dP * P)) * factor.

        All tensors are [rows * heads, queries, keys], and sums are over the keys. P are the
        attention weights before dropout (`weights`), and dP is the gradient of P.
        `gradient` is the gradient of the weights after dropout. Dropout multiplied the weights by
        `factors`, which is None if there was no dropout. `gradient` may be overwritten: it must be
        a tensor that nothing else uses, like the product that `CpuAttention.backward` computes.
        """
        d_weights = gradient.float()
        if factors is not None:
            d_weights *= factors
        d_scores = torch._softmax_backward_data(d_weights, weights.float(), -1, torch.float32)
        return d_scores.mul_(factor).to(gradient.dtype)

    def sum_gradients(self, gradient: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
        """Turn the gradient of a layer's output into the gradients of x W^T + b and of b.

        `gradient` is [*batch, outputs]. y is the layer's output, max(0, x W^T + b); it is None if
        the layer has no ReLU.
        """
        if y is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, y, 0)
        return gradient, gradient.reshape(-1, gradient.shape[-1]).sum(0)

    round_rows = staticmethod(int8.round_rows)
    scale_products = staticmethod(int8.scale_products)
    round_unsigned = staticmethod(layouts.round_unsigned)
    scale_rows = staticmethod(layouts.scale_rows)
