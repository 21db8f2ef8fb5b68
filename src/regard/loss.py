"""§5.4 Label smoothing: the target distribution is (1 - epsilon) · onehot + epsilon / V.

epsilon is spread over every entry of the vocabulary, the right one included, as Szegedy et al.
define it, whom the paper cites. Losses are sums with their token count, never means: the mean over
all processes and micro-batches is taken once, where the update is made.
"""

import math

from jaxtyping import Float, Int
from torch import Tensor


def smoothed_loss(
    logits: Float[Tensor, "tokens vocabulary"],
    labels: Int[Tensor, " tokens"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """(cross-entropy with the smoothed target, plain -log p), in nats, summed; label 0 is padding.

    This is the definition; training never keeps logits: see `arithmetic.cross_entropy`.
    """
    log_p = logits.float().log_softmax(-1)
    real = labels != 0
    plain = -log_p.gather(1, labels[:, None])[:, 0]
    smoothed = (1 - smoothing) * plain - smoothing * log_p.mean(-1)
    return (smoothed * real).sum(), (plain * real).sum()


def perplexity(plain_loss: float, tokens: int) -> float:
    """e^(plain loss per token), per sub-word, as in Table 3."""
    return math.exp(min(plain_loss / max(tokens, 1), 700.0))
