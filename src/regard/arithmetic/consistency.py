"""The gradient of `loss.consistency_loss`, which trains two forward passes to agree (R-Drop).

For the probabilities p and q of the two passes, the label t and the weight w, the loss and its
gradient with respect to the logits of the first pass are

    loss     = -(log p(t) + log q(t)) / 2 + w / 4 · (KL(p || q) + KL(q || p))
    gradient = (p - onehot(t)) / 2 + w / 4 · (p - q + p (log p - log q - KL(p || q)))

In the gradient for the second pass, p and q are exchanged. Label smoothing is added as in
cross_entropy.py.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class PairLosses(NamedTuple):
    """Three fp32 numbers for each token, computed together with the gradients of two passes."""

    right: Float[Tensor, "tokens 1"]
    """The mean of the label's logits in the two passes."""
    log_p: Float[Tensor, "tokens 1"]
    """The mean of the label's log-probabilities in the two passes."""
    divergence: Float[Tensor, "tokens 1"]
    """KL(p || q) + KL(q || p)."""


def pair_gradient(
    first: Tensor, second: Tensor, labels: Tensor, smoothing: float, weight: float
) -> PairLosses:
    """Overwrite the logits of two passes by the gradient of the loss with respect to these logits.

    `first` and `second` are [tokens, vocabulary]; `labels` is [tokens, 1]. The gradients are those
    of the formula at the top of this module, with (1 - smoothing) onehot(t) in place of onehot(t).
    The caller adds the rest of label smoothing's gradient, which has rank one.
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
