"""log P(y | x), the likelihood of given translations, for example to rank or filter them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F

from regard.data.rows import one_per_row
from regard.division import by_length
from regard.errors import DataError, ModelError
from regard.text.tokenizer import BOS, EOS, PAD
from regard.translation import Translator

AT_ONCE = 1024
"""In a batch, source and target each have at most this many positions, padding included, because
memory must hold logits of the whole vocabulary for each position of the target. A pair with a
longer sentence is a batch of its own."""


class Likelihood(NamedTuple):
    """The likelihood of one translation."""

    log_probability: float
    """log P(y | x), a natural logarithm; y ends with </s>."""
    pieces: int
    """Number of the translation's sub-words, </s> included."""
    score: float
    """log P(y | x) divided by the length penalty; the beam search ranks by this score (§6.1)."""


Pair = tuple[list[int], list[int]]


def likelihoods(
    translator: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
    names: tuple[str, str] = ("source", "translation"),
) -> Iterator[Likelihood]:
    """Yield the likelihood of each target as the translation of its source, in order.

    In an ensemble, only the first model computes the likelihoods. Raises DataError if a sentence is
    too long for the model. The error has the number of the sentence, counted from 1, and a name:
    the first of `names` for a source, the second for a target. Raises ModelError if a computed
    log-probability is NaN or infinite, ValueError if the numbers of sources and targets differ, and
    the errors of the tokenizer's `encode`.
    """
    if len(sources) != len(targets):
        raise ValueError(f"{len(sources)} sources and {len(targets)} targets: give as many of each")
    most_written = translator.longest + translator.recipe.max_extra
    longest = min(most_written, translator.model.longest)
    together = translator.window_of(None)
    for first in range(0, len(sources), together):
        window = slice(first, first + together)
        read = translator.tokenizer.encode(sources[window])
        source = _ended(read, names[0], first, translator.longest)
        written = translator.tokenizer.encode(targets[window], "target")
        target = _ended(written, names[1], first, longest)
        yield from _likelihoods(translator, list(zip(source, target, strict=True)))


def _ended(sentences: Sequence[list[int]], name: str, first: int, longest: int) -> list[list[int]]:
    """Put </s> at the end of each sentence.

    Raises DataError if a sentence then has more than `longest` pieces. The error has `name` and the
    number of the sentence; the first of `sentences` has the number `first` + 1.
    """
    encoded = [[*pieces, EOS] for pieces in sentences]
    for number, pieces in enumerate(encoded, start=first + 1):
        if len(pieces) > longest:
            raise DataError(
                f"{len(pieces)} pieces, and this model takes at most {longest}: leave the pair out",
                name,
                number,
            )
    return encoded


def _likelihoods(translator: Translator, pairs: Sequence[Pair]) -> list[Likelihood]:
    found = [0.0] * len(pairs)
    for batch in by_length([max(pair, key=len) for pair in pairs], AT_ONCE, workers=1):
        for i, log_p in zip(batch, _log_p(translator, [pairs[i] for i in batch]), strict=True):
            found[i] = log_p
    penalty = translator.recipe.length_penalty
    return [
        Likelihood(log_p, len(target), log_p / penalty(len(target)))
        for log_p, (_, target) in zip(found, pairs, strict=True)
    ]


@torch.inference_mode()
def _log_p(translator: Translator, pairs: Sequence[Pair]) -> list[float]:
    model = translator.network.eval()
    device = model.device
    source = one_per_row([source for source, _ in pairs]).to(device)
    target = one_per_row([[BOS, *target[:-1]] for _, target in pairs]).to(device)
    labels = one_per_row([target for _, target in pairs]).ids.to(device)
    logits = model(source, target).flatten(0, 1).float()
    losses = F.cross_entropy(logits, labels.flatten(), ignore_index=PAD, reduction="none")
    log_p = -losses.view(labels.shape).sum(1)
    if not log_p.isfinite().all():
        raise ModelError("the model's logits are NaN or infinite: its weights are damaged")
    return log_p.tolist()
