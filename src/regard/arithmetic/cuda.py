"""Computing on a GPU: PyTorch's fused attention, the loss in large chunks, and Adam in one pass.

No function here waits for the GPU: none reads a number from it or copies a number to it.
"""

from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.arithmetic import consistency
from regard.arithmetic.consistency import PairLosses
from regard.arithmetic.cross_entropy import smoothed_cross_entropy
from regard.arithmetic.plain import Plain, fused_adam, fused_lstm
from regard.arithmetic.products import Products
from regard.arithmetic.ranking import most_likely_by_blocks
from regard.equations import Adam, Mask, Moments, Ranking
from regard.machine.compiled import compiled
from regard.machine.devices import is_out_of_memory

EFFICIENT = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""Attention kernels. The first is fast for short rows and takes masks; MATH computes the widths of
heads that the first cannot. cuDNN's kernel is left out, as it builds a plan for each new shape."""
CUDNN = [SDPBackend.CUDNN_ATTENTION, *EFFICIENT]
"""Attention kernels for steps in which all batches have one shape: cuDNN's is preferred."""
_LOGITS_AT_ONCE = 2**27
"""At most this many logits are ranked together: 512 MiB in fp32."""


class CudaMask(Mask):
    """A mask for a fused kernel, which may give NaN for a query without keys.

    `open` lets such a query attend to every key; its output is set to zero afterwards.
    """

    def __init__(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]):
        super().__init__(allowed)
        self.reachable = allowed.any(-1, keepdim=True)
        self.open = allowed | ~self.reachable


class Cuda(Plain):
    """Computes every equation in the way that is fast on a GPU.

    `learning` says whether losses have gradients, `kernels` which attention kernels may be used.
    """

    batch_tokens = 16_384  # even a small step takes a few milliseconds to launch
    side_by_side = False
    chunk = 8192
    """The loss computes the logits of at most this many tokens together: enough for a busy GPU."""

    def __init__(self, *, learning: bool, kernels: list[SDPBackend] = EFFICIENT):
        self.learning, self.kernels, self.products = learning, kernels, Products()

    def mask(self, allowed: Tensor) -> Mask:
        """A mask for a fused kernel."""
        return CudaMask(allowed)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1) by PyTorch's fused kernel."""
        assert isinstance(mask, CudaMask)
        with sdpa_kernel(self.kernels):
            output = F.scaled_dot_product_attention(query, key, value, mask.open, dropout)
        return output * mask.reachable

    def lstm(self, x: Tensor, of_input: nn.Linear, of_state: nn.Linear) -> Tensor:
        """cuDNN's LSTM over whole rows."""
        return fused_lstm(x, of_input, of_state)

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
        """Adam, compiled to one pass over all tensors; in fp32, PyTorch's fused Adam."""
        if weights is master or self._one_pass is None:
            fused_adam(master, weights, gradient, moments, constants, rate, tokens)
            return
        # Tensors, because a program is compiled again for each new value of a Python number.
        numbers = (torch.full_like(moments.updates, 1.0) * number for number in (rate, tokens))
        try:
            self._one_pass(master, weights, gradient, moments, constants, *numbers)
        except Exception as error:  # compiling may raise any exception; nothing is changed then
            if is_out_of_memory(error):
                raise
            self._one_pass = None
            self.adam(master, weights, gradient, moments, constants, rate, tokens)

    @cached_property
    def _one_pass(self) -> Any:
        return compiled(adam_in_one_pass)

    def chunk_of(self, tokens: int) -> int:
        """Divide the tokens into as few chunks as possible, of nearly equal sizes.

        A chunk has at most `chunk` tokens. There are few, because each reads all embeddings.
        """
        return max(1, -(-tokens // max(1, -(-tokens // self.chunk))))

    def softmax_gradient(
        self, logits: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Turn logits into softmax - (1 - smoothing) * onehot; return each label's logit, log p."""
        right = logits.gather(1, labels).float()
        p = torch.softmax(logits, 1, out=logits)
        chosen = p.gather(1, labels).float()
        p.scatter_(1, labels, (chosen - (1 - smoothing)).to(p.dtype))
        return right, chosen.clamp(min=1e-38).log()

    def pair_gradient(
        self, first: Tensor, second: Tensor, labels: Tensor, smoothing: float, weight: float
    ) -> PairLosses:
        """Turn the logits of two passes into their gradients, in place."""
        return consistency.pair_gradient(first, second, labels, smoothing, weight)

    def is_one(self, gradient: Tensor) -> bool:
        """False, because reading the gradient would wait for the GPU."""
        return False


def adam_in_one_pass(
    master: Tensor,
    weights: Tensor,
    gradient: Tensor,
    moments: Moments,
    constants: Adam,
    rate: Tensor,
    tokens: Tensor,
) -> None:
    """Update as `Arithmetic.adam` specifies, in a form that a compiler turns into one kernel."""
    beta1, beta2, epsilon = constants
    updates, mean, variance = moments
    updates += 1
    mean_scale, variance_scale = 1 - beta1**updates, (1 - beta2**updates).sqrt()
    one = gradient.float() / tokens
    mean.lerp_(one, 1 - beta1)
    variance.mul_(beta2).addcmul_(one, one, value=1 - beta2)
    master -= rate / mean_scale * mean / (variance.sqrt() / variance_scale + epsilon)
    weights.copy_(master)
    gradient.zero_()
