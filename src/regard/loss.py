"""§5.4 Label smoothing: the target distribution is (1 - epsilon) · onehot + epsilon / V.

epsilon is spread over all V entries of the vocabulary, the label included, as in the definition by
Szegedy et al., whom the paper cites. A loss is a sum over tokens, never a mean: the optimizer
divides the gradient once, by the number of target tokens of all batches and processes of the step.
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor


def smoothed_loss(
    logits: Float[Tensor, "tokens vocabulary"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The cross-entropy with the smoothed target, and the plain -log p(label), in nats.

    Both losses are summed over tokens; labels of 0 are padding and do not count. This function is
    the definition; `arithmetic.cross_entropy` computes the same losses without keeping the logits
    of a batch.
    """
    log_p = logits.float().log_softmax(-1)
    real = labels != 0
    plain = -log_p.gather(1, labels[:, None])[:, 0]
    smoothed = (1 - smoothing) * plain - smoothing * log_p.mean(-1)
    return (smoothed * real).sum(), (plain * real).sum()


def consistency_loss(
    first: Float[Tensor, "tokens vocabulary"],
    second: Float[Tensor, "tokens vocabulary"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
    weight: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """The mean of two passes' smoothed losses, plus weight / 4 · (KL(p || q) + KL(q || p)).

    `first` and `second` are the logits of two passes that differ only in their dropout; p and q are
    the probabilities that these logits give (R-Drop, Wu et al., 2021). The second result is the
    mean of the plain losses. Both results are in nats, summed over tokens, without padding
    (label 0).
    """
    losses = [smoothed_loss(logits, labels, smoothing) for logits in (first, second)]
    smoothed, plain = (torch.stack(both).mean(0) for both in zip(*losses, strict=True))
    log_p, log_q = first.float().log_softmax(-1), second.float().log_softmax(-1)
    divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(-1)
    return smoothed + weight / 4 * (divergence * (labels != 0)).sum(), plain


def perplexity(plain_loss: float, tokens: int) -> float:
    """e^(plain loss / tokens), the perplexity per sub-word of Table 3.

    The result is at most e^700, because a larger power could overflow. Without tokens, it is 1.
    """
    return math.exp(min(plain_loss / max(tokens, 1), 700.0))
