"""The best continuations of hypotheses (§6.1), without ranking the whole vocabulary."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.equations import Ranking

if TYPE_CHECKING:
    from regard.arithmetic.fused import Fused

BLOCK = 128
"""The number of tokens in a block of the vocabulary; only tokens of the best blocks are ranked."""


class Summary(NamedTuple):
    """Two fp32 tensors, computed from all logits, by which the best continuations are found."""

    maxima: Float[Tensor, "rows blocks"]
    """The largest logit of each block of `BLOCK` tokens; the last block may be short."""
    totals: Float[Tensor, " rows"]
    """Each row's log-sum-exp; 0 for a row of -inf."""


def most_likely_by_blocks(
    by: "Fused",
    live: Float[Tensor, "sentences beams"],
    logits: Float[Tensor, "rows vocabulary"],
    never: tuple[int, ...],
    count: int,
) -> Ranking:
    """Find the same continuations as `regard.hypotheses.most_likely`, by blocks of tokens.

    `by.summarize` finds the largest logit of each block. Blocks are compared by the
    log-probabilities that follow from these logits. Then `by.rank` ranks only the tokens of the
    best `count` blocks, because these blocks contain the `count` best continuations.
    """
    vocabulary, beams = logits.shape[1], live.shape[1]
    maxima, totals = by.summarize(logits)
    # [rows, ...] -> [sentences, beams, ...]
    both = _without(never, maxima, logits), totals
    maxima, totals = (x.unflatten(0, (-1, beams)) for x in both)
    maxima = live.unsqueeze(-1) + (maxima - totals.unsqueeze(-1))
    blocks = by.rank(maxima.flatten(1), count).sort(dim=1).values  # [sentences, blocks]
    # `tokens` and `parents` become [sentences, blocks * BLOCK]. They list all tokens of these
    # blocks, and the beam of each token, sorted by beam and then by token.
    within = torch.arange(BLOCK, device=blocks.device)
    tokens = (blocks % maxima.shape[-1] * BLOCK).unsqueeze(-1) + within
    tokens, parents = tokens.flatten(1), (blocks // maxima.shape[-1]).repeat_interleave(BLOCK, 1)
    impossible = tokens >= vocabulary
    for token in never:
        impossible |= tokens == token
    places = parents * vocabulary + tokens.clamp(max=vocabulary - 1)
    chosen = logits.view(len(live), -1).gather(1, places).float()
    log_p = live.gather(1, parents) + (chosen - totals.gather(1, parents))
    log_p = log_p.masked_fill_(impossible, -torch.inf)
    best = by.rank(log_p, count)
    return Ranking(*(x.gather(1, best) for x in (parents, tokens, log_p)))


def summary(logits: Float[Tensor, "rows vocabulary"], at_once: int) -> Summary:
    """The `Summary` of these logits, which are read in groups of rows.

    A group is one row, or several with at most `at_once` logits in total. It should fit a CPU's
    caches or a GPU's memory.
    """
    some = max(1, at_once // logits.shape[1])
    maxima, totals = [], []
    for part in logits.split(some):
        x = part.float()
        largest = _block_maxima(x)
        top = largest.amax(dim=-1)
        total = top - x.log_softmax(dim=-1).amax(dim=-1)
        # A row of -inf has the total 0, so that its log-probabilities are -inf and not NaN.
        totals.append(total.masked_fill_(top == -torch.inf, 0.0))
        maxima.append(largest)
    return Summary(torch.cat(maxima), torch.cat(totals))


def _without(
    never: tuple[int, ...],
    maxima: Float[Tensor, "rows blocks"],
    logits: Float[Tensor, "rows vocabulary"],
) -> Float[Tensor, "rows blocks"]:
    """Set the maximum of each block that has tokens of `never` to that of its other tokens.

    `maxima` is changed in place, and returned.
    """
    for block in {token // BLOCK for token in never}:
        tokens = logits[:, block * BLOCK : (block + 1) * BLOCK].to(torch.float32, copy=True)
        # The logits are set one by one: with a list as an index, the host would wait for the GPU.
        for token in never:
            if token // BLOCK == block:
                tokens[:, token % BLOCK].fill_(-torch.inf)
        maxima[:, block] = tokens.amax(dim=-1)
    return maxima


def _block_maxima(x: Float[Tensor, "rows vocabulary"]) -> Float[Tensor, "rows blocks"]:
    """The largest logit of each block; the last block may be short."""
    whole = x.shape[1] - x.shape[1] % BLOCK
    largest = x[:, :whole].unflatten(1, (-1, BLOCK)).amax(dim=-1)
    if whole == x.shape[1]:
        return largest
    return torch.cat([largest, x[:, whole:].amax(dim=-1, keepdim=True)], dim=1)
