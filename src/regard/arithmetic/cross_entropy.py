"""The output layer and its loss as one operation: linear, softmax, smoothed cross-entropy.

The logits of a batch are by far its largest tensor. They are made a chunk of tokens at a time and
turned into the gradient at once, in the forward pass, so that they are never kept. Two identities
make label smoothing free: with z a state, W the embeddings and t the right entry,

    loss     = -log p(t) + epsilon · (z · W[t] - z · mean_v W)
    gradient = softmax - (1 - epsilon) · onehot(t) - epsilon / V,

whose last term has rank one and is added after the matrix products.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.arithmetic.device import on_cpu
from regard.arithmetic.int8 import in_int8, product, rounded
from regard.arithmetic.one_core import array, by_loops

CHUNK_CPU = 1024  # tokens: the logits stay near the caches
CHUNK_GPU = 8192  # tokens: a product large enough to fill the device


def smoothed_cross_entropy(
    states: Float[Tensor, "tokens d_model"],
    embedding: Float[Tensor, "vocabulary d_model"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """What `regard.loss.smoothed_loss` defines, summed over tokens: (smoothed, plain), fp32, nats.

    Labels of 0 are padding and count nothing. Only the smoothed loss has a gradient. In bf16 the
    reported losses carry the rounding of one bf16 probability a token, but without gradient, or by
    loops, they are computed in fp32; the smoothed one also has that of the mean of the embeddings.
    """
    smoothed, plain = _SmoothedCrossEntropy.apply(
        states, embedding, labels, smoothing, torch.is_grad_enabled()
    )
    return smoothed, plain


class _SmoothedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        embedding: Tensor,
        labels: Tensor,
        smoothing: float,
        learning: bool,
    ) -> tuple[Tensor, Tensor]:
        mean = embedding.sum(0).float() / len(embedding)  # to fp32 first would copy all of it
        smoothed, plain = torch.zeros((2,), device=states.device).unbind()
        d_states = torch.empty_like(states if learning else states[:0])
        z_sum = torch.zeros_like(mean)
        d_embedding = torch.zeros_like(embedding if learning else embedding[:0])
        weight = rounded(embedding) if on_cpu(states) and in_int8() else None

        chunk = CHUNK_CPU if on_cpu(states) else CHUNK_GPU
        rows = min(chunk, len(states)) if weight is None else 0
        room = states.new_empty(rows, len(embedding))  # for the logits of one chunk
        for first in range(0, len(states), chunk):
            here = slice(first, first + chunk)
            t = labels[here, None]
            z = states[here] * (t != 0)  # padding adds nothing to the embedding's gradient
            if weight is None:
                logits = torch.mm(z, embedding.t(), out=room[: len(z)])
            else:
                logits = product(rounded(z), weight, None, False, z.dtype)
            if learning:
                right, log_p = _to_gradient(logits, t, smoothing)
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
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        d_states, d_embedding = ctx.saved_tensors
        if on_cpu(gradient) and gradient == 1:  # of the plain sum; a GPU is not waited for
            return d_states, d_embedding, None, None, None
        # In place: the gradients are made once and used once.
        return d_states.mul_(gradient), d_embedding.mul_(gradient), None, None, None


def _to_gradient(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Turn logits into softmax - (1 - smoothing) * onehot; of each label logit and log p, fp32."""
    if on_cpu(logits) and by_loops():
        from regard.arithmetic.loops.cross_entropy import softmax_gradient

        right, log_p = torch.empty(2, len(logits)).unbind()
        one, each = array(labels[:, 0].contiguous()), (array(right), array(log_p))
        softmax_gradient(array(logits), one, smoothing, *each)
        return right[:, None], log_p[:, None]
    right = logits.gather(1, labels).float()
    p = torch.softmax(logits, 1, out=logits)
    log_p = p.gather(1, labels).float().clamp(min=1e-38).log()
    # scatter_add_ would copy all of p, twice.
    entries = (torch.arange(len(p), device=p.device), labels[:, 0])
    p.index_put_(entries, p.new_tensor(smoothing - 1), accumulate=True)
    return right, log_p
