"""The output layer and its loss as one operation: linear, softmax, smoothed cross-entropy.

The logits of a batch are by far its largest tensor. They are computed for a chunk of tokens at a
time and are turned into their gradient in the forward pass, so they are never kept. Two
equations make label smoothing almost free. For a state z, the V embeddings W, the mean embedding
mean_v W, and the label t, the loss and its gradient with respect to the logits are

    loss     = -log p(t) + epsilon · (z · W[t] - z · mean_v W)
    gradient = softmax - (1 - epsilon) · onehot(t) - epsilon / V.

The last term of the gradient has rank one. It is left out when the gradient is multiplied by W and
by the states; what it would add to each product is computed and added separately.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from regard.arithmetic.fused import Fused


def cross_entropy_by_chunks(
    by: Fused,
    states: Float[Tensor, "passes_x_tokens d_model"],
    embedding: Float[Tensor, "vocabulary d_model"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    consistency: float = 0.0,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The smoothed and the plain loss of `Arithmetic.cross_entropy`: sums in fp32, in nats.

    Only the smoothed loss has a gradient, and only if `by.learning` is True. If `states` are in
    bf16, the logits are rounded to bf16. The plain loss is computed from the probabilities of the
    labels. With logits in bf16, these probabilities are also rounded to bf16. They are not rounded
    if `by.learning` is False, if `consistency` is not 0, or if a compiled loop or the kernel
    `softmax_gradient` computes them. The smoothed loss also has the rounding error of the mean
    embedding.
    """
    smoothed, plain = _CrossEntropy.apply(by, states, embedding, labels, smoothing, consistency)
    return smoothed, plain


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        by: Fused,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        consistency: float,
    ) -> tuple[Tensor, Tensor]:
        ctx.by = by
        passes, tokens = 2 if consistency else 1, len(labels)
        # .float() is called after .sum(0), because it would otherwise copy all embeddings.
        mean = embedding.sum(0).float() / len(embedding)
        smoothed, plain = torch.zeros((2,), device=states.device).unbind()
        d_states = torch.empty_like(states if by.learning else states[:0])
        z_sum = torch.zeros_like(mean)
        d_embedding = torch.zeros_like(embedding if by.learning else embedding[:0])
        chunk = by.chunk_of(tokens)
        products = [by.products.to_logits(by, embedding, min(chunk, tokens)) for _ in range(passes)]
        for first in range(0, tokens, chunk):
            here = slice(first, first + chunk)
            t = labels[here, None]
            # The states of padding become 0, so that they do not change the embedding's gradient.
            z = [one[here] * (t != 0) for one in states.chunk(passes)]
            logits = [to_logits(one) for to_logits, one in zip(products, z, strict=True)]
            terms = _terms(by, z, logits, t, mean, smoothing, consistency)
            plain = plain + terms[0]
            for term in terms:
                smoothed = smoothed + term
            if by.learning:
                for one, gradient, out in zip(z, logits, d_states.chunk(passes), strict=True):
                    beta, low = -smoothing / passes, mean.to(one.dtype)
                    torch.addmm(low, gradient, embedding, beta=beta, out=out[here])
                    d_embedding.addmm_(gradient.t(), one)
                    z_sum = z_sum + one.sum(0, dtype=torch.float32)
        if by.learning:
            d_embedding -= (smoothing / passes / len(embedding) * z_sum).to(embedding.dtype)
            d_states *= (labels != 0)[:, None].repeat(passes, 1)
        ctx.save_for_backward(d_states, d_embedding)
        ctx.mark_non_differentiable(plain)
        return smoothed, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        d_states, d_embedding = ctx.saved_tensors
        if not ctx.by.is_one(gradient):
            # The gradients are scaled in place, because they are used only once.
            d_states, d_embedding = d_states.mul_(gradient), d_embedding.mul_(gradient)
        return None, d_states, d_embedding, None, None, None


def _terms(
    by: Fused,
    z: list[Tensor],
    logits: list[Tensor],
    t: Tensor,
    mean: Tensor,
    smoothing: float,
    consistency: float,
) -> tuple[Tensor, ...]:
    """The plain loss of a chunk, what smoothing adds and, with two passes, what consistency adds.

    Each term is a sum over tokens. If `by.learning` is True or there are two passes, the logits of
    each pass are turned, in place, into their gradient without its last term, which has rank one.
    """
    real = t != 0
    if consistency:
        right, log_p, divergence = by.pair_gradient(logits[0], logits[1], t, smoothing, consistency)
        uniform = ((z[0] + z[1]).float() @ mean[:, None]).sum() / 2
        smoothed = smoothing * ((right * real).sum() - uniform)
        return -(log_p * real).sum(), smoothed, consistency / 4 * (divergence * real).sum()
    if by.learning:
        right, log_p = by.softmax_gradient(logits[0], t, smoothing)
    else:
        right = logits[0].gather(1, t).float()
        log_p = right - logits[0].float().logsumexp(1, keepdim=True)
    return -(log_p * real).sum(), smoothing * (right - z[0].float() @ mean[:, None]).sum()


def softmax_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Turn logits into softmax - (1 - smoothing) * onehot, in place.

    `logits` is [tokens, vocabulary], and `labels` is [tokens, 1]. Returns each label's logit and
    log-probability, both in fp32, [tokens, 1].
    """
    right = logits.gather(1, labels).float()
    p = torch.softmax(logits, 1, out=logits)
    chosen = p.gather(1, labels).float()
    # The difference is computed in fp32, because bf16 has no exact 1 - smoothing. In bf16 on a CPU,
    # scatter_ takes longer than index_put_.
    places = (torch.arange(len(p), device=p.device), labels[:, 0])
    p.index_put_(places, (chosen - (1 - smoothing)).to(p.dtype)[:, 0])
    return right, chosen.clamp(min=1e-38).log()
