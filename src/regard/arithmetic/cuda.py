"""A GPU: PyTorch's fused attention, and the loss in large chunks."""

import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.arithmetic import consistency
from regard.arithmetic.consistency import PairLosses
from regard.arithmetic.cross_entropy import smoothed_cross_entropy, softmax_gradient
from regard.arithmetic.plain import Plain, fused_adam
from regard.arithmetic.products import Products
from regard.arithmetic.ranking import most_likely_by_blocks
from regard.equations import Adam, Mask, Moments, Ranking

FUSED = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels: the first is fast for short rows and takes masks; MATH takes the head widths
that the first does not. cuDNN's is left out: it builds a plan for each new shape."""
_LOGITS_AT_ONCE = 2**27
"""Logits ranked together: 512 MiB in fp32."""


class CudaMask(Mask):
    """A mask for a fused kernel, which may give NaN for a query without keys.

    `open` lets such a query attend everywhere; its output is set to zero afterwards.
    """

    def __init__(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]):
        super().__init__(allowed)
        self.reachable = allowed.any(-1, keepdim=True)
        self.open = allowed | ~self.reachable


class Cuda(Plain):
    """Every equation as it is fast on a GPU; `learning` says whether losses have gradients."""

    batch_tokens = 16_384  # even a small step takes a few milliseconds to launch
    side_by_side = False
    chunk = 8192
    """Tokens whose logits are computed together in the loss: enough to occupy the device."""

    def __init__(self, *, learning: bool):
        self.learning, self.products = learning, Products()

    def mask(self, allowed: Tensor) -> Mask:
        """A mask for a fused kernel."""
        return CudaMask(allowed)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1) by PyTorch's fused kernel."""
        assert isinstance(mask, CudaMask)
        with sdpa_kernel(FUSED):
            output = F.scaled_dot_product_attention(query, key, value, mask.open, dropout)
        return output * mask.reachable

    def linear(self, x: Tensor, *layers: nn.Linear, relu: bool = False) -> Tensor:
        """x W^T + b of all layers in one product."""
        return self.products.linear(self, x, layers, relu)

    def cross_entropy(
        self, states: Tensor, embedding: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """The loss, computed without keeping all logits."""
        return smoothed_cross_entropy(
            self, states, embedding, labels, smoothing, learning=self.learning
        )

    def consistent_cross_entropy(
        self, states: Tensor, embedding: Tensor, labels: Tensor, smoothing: float, weight: float
    ) -> tuple[Tensor, Tensor]:
        """The loss of two passes, computed without keeping all logits."""
        return consistency.consistent_cross_entropy(
            self, states, embedding, labels, smoothing, weight
        )

    def most_likely(
        self, live: Tensor, logits: Tensor, never: tuple[int, ...], count: int
    ) -> Ranking:
        """The best continuations, found by the maxima of blocks of the vocabulary."""
        return most_likely_by_blocks(live, logits, never, count, _LOGITS_AT_ONCE)

    def adam(
        self,
        master: Tensor,
        weights: Tensor,
        gradient: Tensor,
        moments: Moments,
        constants: Adam,
        rate: float,
        tokens: int | Tensor,
    ) -> None:
        """PyTorch's fused Adam."""
        fused_adam(master, weights, gradient, moments, constants, rate, tokens)

    def softmax_gradient(
        self, logits: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Turn logits into softmax - (1 - smoothing) * onehot; return each label's logit, log p."""
        return softmax_gradient(logits, labels, smoothing)

    def pair_gradient(
        self, first: Tensor, second: Tensor, labels: Tensor, smoothing: float, weight: float
    ) -> PairLosses:
        """Turn the logits of two passes into their gradients, in place."""
        return consistency.pair_gradient(first, second, labels, smoothing, weight)

    def is_one(self, gradient: Tensor) -> bool:
        """False, because reading the gradient would wait for the GPU."""
        return False
