"""The output layer and its loss as one operation: linear, softmax, smoothed cross-entropy.

The logits of a batch are by far its largest tensor. They are computed for a chunk of tokens at a
time and are turned into their gradient in the forward pass, so they are never kept. Two
identities make label smoothing free: for a state z, the embeddings W and the label t,

    loss     = -log p(t) + epsilon · (z · W[t] - z · mean_v W)
    gradient = softmax - (1 - epsilon) · onehot(t) - epsilon / V.

The last term of the gradient has rank one; it is added after the matrix products.
"""

from typing import Any, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.arithmetic.products import Products


class LossParts(Protocol):
    """The attributes and methods of an `Arithmetic` that the loss uses."""

    products: Products

    def chunk_of(self, tokens: int) -> int:
        """How many tokens have their logits computed together, if there are `tokens` in all."""

    def softmax_gradient(
        self, logits: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Turn logits into softmax - (1 - smoothing) * onehot, in place.

        Returns each label's logit and log p, both in fp32, [tokens, 1].
        """

    def is_one(self, gradient: Tensor) -> bool:
        """Whether the gradient of the loss is known to be 1."""


def smoothed_cross_entropy(
    by: LossParts,
    states: Float[Tensor, "tokens d_model"],
    embedding: Float[Tensor, "vocabulary d_model"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    *,
    learning: bool,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The (smoothed, plain) loss as `regard.loss.smoothed_loss` defines it: a sum in fp32, in nats.

    Labels of 0 are padding and do not count. Only the smoothed loss has a gradient, and only if
    `learning` is True. In bf16, each token's loss has the rounding error of one bf16 probability,
    unless it is computed without a gradient or by loops, which use fp32. The smoothed loss also has
    the rounding error of the mean of the embeddings.
    """
    smoothed, plain = _SmoothedCrossEntropy.apply(
        by, states, embedding, labels, smoothing, learning
    )
    return smoothed, plain


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by: LossParts,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.by = by
        mean = embedding.sum(0).float() / len(embedding)  # .float().sum() would copy all of it
        smoothed, plain = torch.zeros((2,), device=states.device).unbind()
        d_states = torch.empty_like(states if learning else states[:0])
        z_sum = torch.zeros_like(mean)
        d_embedding = torch.zeros_like(embedding if learning else embedding[:0])
        chunk = by.chunk_of(len(states))
        to_logits = by.products.to_logits(by, embedding, min(chunk, len(states)))
        for first in range(0, len(states), chunk):
            here = slice(first, first + chunk)
            t = labels[here, None]
            z = states[here] * (t != 0)  # padding adds nothing to the embedding's gradient
            logits = to_logits(z)
            if learning:
                right, log_p = by.softmax_gradient(logits, t, smoothing)
            else:
                right = logits.gather(1, t).float()
                log_p = right - logits.float().logsumexp(1, keepdim=True)
            nll = -(log_p * (t != 0)).sum()
            plain = plain + nll
            smoothed = smoothed + nll + smoothing * (right - z.float() @ mean[:, None]).sum()
            if learning:
                torch.addmm(
                    mean.to(z.dtype), logits, embedding, beta=-smoothing, out=d_states[here]
                )
                d_embedding.addmm_(logits.t(), z)
                z_sum = z_sum + z.sum(0, dtype=torch.float32)
        if learning:
            d_embedding -= (smoothing / len(embedding) * z_sum).to(embedding.dtype)
            d_states *= (labels != 0)[:, None]
        ctx.save_for_backward(d_states, d_embedding)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_embedding = ctx.saved_tensors
        if not ctx.by.is_one(gradient):
            # In place, because these gradients are used only once.
            d_states, d_embedding = d_states.mul_(gradient), d_embedding.mul_(gradient)
        return None, d_states, d_embedding, None, None, None


def softmax_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Turn logits into softmax - (1 - smoothing) * onehot; return each label's logit and log p."""
    right = logits.gather(1, labels).float()
    p = torch.softmax(logits, 1, out=logits)
    log_p = p.gather(1, labels).float().clamp(min=1e-38).log()
    # scatter_add_ would copy all of p, twice. On a GPU, new_tensor would wait, so `Cuda` differs.
    entries = (torch.arange(len(p), device=p.device), labels[:, 0])
    p.index_put_(entries, p.new_tensor(smoothing - 1), accumulate=True)
    return right, log_p
