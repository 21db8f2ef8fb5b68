"""The loss of two passes that shall agree (R-Drop), computed without keeping all logits.

It is computed like the loss in cross_entropy.py: the logits of a chunk of tokens are turned into
their gradient at once. For the probabilities p and q of the two passes, the label t and the weight
w,

    loss          = -(log p(t) + log q(t)) / 2 + w / 4 · (KL(p || q) + KL(q || p))
    gradient of p = (p - onehot(t)) / 2 + w / 4 · (p - q + p (log p - log q - KL(p || q)))

and the gradient of q has p and q exchanged. Label smoothing is added as in cross_entropy.py.
"""

from typing import Any, NamedTuple, Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.arithmetic.products import Products


class PairLosses(NamedTuple):
    """Three fp32 numbers for each token, which are computed with the gradient of two passes."""

    right: Float[Tensor, "tokens 1"]
    """The mean of the label's logits in the two passes."""
    log_p: Float[Tensor, "tokens 1"]
    """The mean of the label's log-probabilities in the two passes."""
    divergence: Float[Tensor, "tokens 1"]
    """KL(p || q) + KL(q || p)."""


class ConsistencyParts(Protocol):
    """The attributes and methods of an `Arithmetic` that this loss uses."""

    products: Products

    def chunk_of(self, tokens: int) -> int:
        """How many tokens have their logits computed together, if there are `tokens` in all."""

    def pair_gradient(
        self, first: Tensor, second: Tensor, labels: Tensor, smoothing: float, weight: float
    ) -> PairLosses:
        """Turn the logits of both passes into their gradients in place, like `pair_gradient`."""

    def is_one(self, gradient: Tensor) -> bool:
        """Whether the gradient of the loss is known to be 1."""


def consistent_cross_entropy(
    by: ConsistencyParts,
    states: Float[Tensor, "both d_model"],
    embedding: Float[Tensor, "vocabulary d_model"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    weight: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The (smoothed, plain) loss as `regard.loss.consistency_loss` defines it: a sum in fp32, nats.

    `states` holds the states of all tokens in the first pass, then the states in the second pass.
    """
    smoothed, plain = _ConsistentCrossEntropy.apply(
        by, states, embedding, labels, smoothing, weight
    )
    return smoothed, plain


class _ConsistentCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by: ConsistencyParts,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        weight: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.by = by
        mean = embedding.sum(0).float() / len(embedding)
        smoothed, plain = torch.zeros((2,), device=states.device).unbind()
        d_states, d_embedding = torch.empty_like(states), torch.zeros_like(embedding)
        z_sum, tokens = torch.zeros_like(mean), len(labels)
        chunk = by.chunk_of(tokens)
        products = [by.products.to_logits(by, embedding, min(chunk, tokens)) for _ in range(2)]
        for begin in range(0, tokens, chunk):
            here = slice(begin, begin + chunk)
            t = labels[here, None]
            real = t != 0
            passes = [half[here] for half in states.view(2, tokens, -1)]
            z = [half * real for half in passes]  # padding adds nothing to the gradients
            logits = [product(half) for product, half in zip(products, z, strict=True)]
            right, log_p, divergence = by.pair_gradient(logits[0], logits[1], t, smoothing, weight)
            nll = -(log_p * real).sum()
            plain = plain + nll
            uniform = ((z[0] + z[1]).float() @ mean[:, None]).sum() / 2
            smoothed = smoothed + nll + smoothing * ((right * real).sum() - uniform)
            smoothed = smoothed + weight / 4 * (divergence * real).sum()
            for half, gradient, out in zip(z, logits, d_states.view(2, tokens, -1), strict=True):
                torch.addmm(
                    mean.to(half.dtype), gradient, embedding, beta=-smoothing / 2, out=out[here]
                )
                d_embedding.addmm_(gradient.t(), half)
                z_sum = z_sum + half.sum(0, dtype=torch.float32)
        d_embedding -= (smoothing / 2 / len(embedding) * z_sum).to(embedding.dtype)
        d_states *= (labels != 0)[:, None].repeat(2, 1)
        ctx.save_for_backward(d_states, d_embedding)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_embedding = ctx.saved_tensors
        if not ctx.by.is_one(gradient):
            d_states, d_embedding = d_states.mul_(gradient), d_embedding.mul_(gradient)
        return None, d_states, d_embedding, None, None, None


def pair_gradient(
    first: Tensor, second: Tensor, labels: Tensor, smoothing: float, weight: float
) -> PairLosses:
    """Turn the logits of two passes into their gradients, in place.

    The gradient has (1 - smoothing) onehot in place of onehot. The rest of label smoothing's
    gradient has rank one; the caller adds it.
    """
    right = (first.gather(1, labels).float() + second.gather(1, labels).float()) / 2
    logs = first.float().log_softmax(1), second.float().log_softmax(1)
    log_p = (logs[0].gather(1, labels) + logs[1].gather(1, labels)) / 2
    difference = logs[0] - logs[1]
    p, q = (log.exp_() for log in logs)
    p_to_q = (p * difference).sum(1, keepdim=True)
    q_to_p = -(q * difference).sum(1, keepdim=True)
    share = p.new_full((), (smoothing - 1) / 2)
    rows = torch.arange(len(p), device=p.device)
    for out, own, other, apart, divergence in (
        (first, p, q, difference, p_to_q),
        (second, q, p, -difference, q_to_p),
    ):
        gradient = own / 2 + weight / 4 * (own - other + own * (apart - divergence))
        gradient.index_put_((rows, labels[:, 0]), share, accumulate=True)
        out.copy_(gradient)
    return PairLosses(right, log_p, p_to_q + q_to_p)
