"""A first embedding: sub-words that occur in the same pairs of sentences have similar vectors.

A word and its translation occur in the same pairs. If their vectors are similar from the first
step on, attention finds sooner which source word a target word comes from. The vectors are those
of latent semantic indexing across languages (Littman et al. 1998): the singular vectors of a matrix
that tells which sub-word occurs in which pair. Only the recipe field `training.first_embedding`
asks for them; in the paper, embeddings begin at random.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.data.pair_source import PairSource
from regard.encoder_decoder import EncoderDecoder

MOST_PAIRS = 50_000
"""If there are more pairs, this many are read, evenly spread over the text."""
LEAST_PAIRS = 2
"""A sub-word that occurs in fewer pairs than this keeps its random vector."""
SHARED = 0.7
"""The approximate cosine between a sub-word's row in the first embedding and the sub-word's vector
of co-occurrence. The rest of the row is random. Without this random part, a word and its
translation would have nearly equal rows."""
ITERATIONS, SPARE = 3, 12
"""The number of subspace iterations, and the number of extra directions that they find, which are
then dropped (oversampling, Halko et al. 2011)."""


class Occurrences(NamedTuple):
    """Which sub-word occurs in which pair, in order of the sub-words."""

    entries: Int[Tensor, "occurrences"]
    """The sub-word of each occurrence: its id or, in a target, its id plus `shift` (see `of`)."""
    pairs: Int[Tensor, "occurrences"]
    """The pair of each occurrence: its number among the pairs that were read."""
    entry_counts: Int[Tensor, "entries"]
    """For each sub-word, the number of pairs in which it occurs."""
    pair_counts: Int[Tensor, "pairs"]
    """For each pair, the number of different sub-words that occur in it."""

    @classmethod
    def of(cls, pairs: PairSource, entries: int, shift: int) -> "Occurrences":
        """The occurrences in at most MOST_PAIRS pairs; `entries` is the number of all sub-words.

        `shift` is added to the ids of sub-words in targets; it is 0 if source and target share
        an embedding matrix. A sub-word counts once in a pair.
        """
        count = min(len(pairs), MOST_PAIRS)
        chosen = [i * len(pairs) // count for i in range(count)]
        sides = [pairs.source(i) for i in chosen], [pairs.target(i) for i in chosen]
        lengths = np.array([[len(sentence) for sentence in side] for side in sides])
        of_side = [np.concatenate(side).astype(np.int64) for side in sides]
        of_side[1] += shift
        numbers = [np.repeat(np.arange(count), each) for each in lengths]
        both = np.unique(np.concatenate(of_side) * count + np.concatenate(numbers))
        entry, pair = torch.from_numpy(both // count), torch.from_numpy(both % count)
        by_entry, by_pair = entry.bincount(minlength=entries), pair.bincount(minlength=count)
        return cls(entry, pair, by_entry, by_pair)

    def informative(self) -> Bool[Tensor, "entries"]:
        """Which sub-words occur in at least LEAST_PAIRS pairs, but not in all (as </s> does)."""
        counts = self.entry_counts
        return (counts >= LEAST_PAIRS) & (counts < len(self.pair_counts))

    def weights(self) -> Float[Tensor, "occurrences"]:
        """The number in the matrix for each occurrence; larger if the pair has fewer sub-words.

        The matrix has a row for each sub-word and a column for each pair. The row of a sub-word in
        n pairs has the norm n^(1/4), or 0 if the sub-word is not `informative`.
        """
        counts = self.entry_counts.clamp(min=1).float()
        weights = self.pair_counts[self.pairs].float().rsqrt()
        norms = torch.zeros_like(counts).index_add_(0, self.entries, weights.square()).sqrt()
        scales = counts**0.25 / norms.clamp(min=1e-6)
        scales[~self.informative()] = 0
        return weights * scales[self.entries]


def begin_with_pairs(model: EncoderDecoder, pairs: PairSource, seed: int) -> None:
    """Turn the rows of the embedding of a new model towards the vectors of co-occurrence.

    Each row keeps its norm. Source and target may have one embedding matrix or two; with two, a
    sub-word of the source and one of the target never count as the same sub-word. `seed` is that
    of the random numbers in `vectors_of_pairs`.
    """
    source, target = model.embedding.tokens.weight.data, model.target_side.tokens.weight.data
    are_one = model.target_side is model.embedding
    shift = 0 if are_one else len(source)
    occurrences = Occurrences.of(pairs, shift + len(target), shift)
    vectors = vectors_of_pairs(occurrences, source.shape[1], seed)
    _turn(source, vectors[: len(source)])
    if not are_one:
        _turn(target, vectors[shift:])


def _turn(rows: Float[Tensor, "rows width"], vectors: Float[Tensor, "rows width"]) -> None:
    """Turn each row towards its vector, in place; a row with a vector of zeros stays."""
    norms = rows.norm(dim=1, keepdim=True)
    turned = SHARED * vectors + (1 - SHARED**2) ** 0.5 * rows / norms
    rows.copy_(torch.where(vectors.any(dim=1, keepdim=True), F.normalize(turned) * norms, rows))


def vectors_of_pairs(
    occurrences: Occurrences, width: int, seed: int
) -> Float[Tensor, "entries width"]:
    """Vectors of norm 1, similar for sub-words that occur in the same pairs.

    A sub-word that is not `informative` has a vector of zeros. The direction with the largest
    singular value is left out, because all sub-words have it in common. A random rotation gives all
    numbers of the vectors the same expected size.
    """
    generator = torch.Generator().manual_seed(seed)
    values, vectors = _strongest(occurrences, width + 1, generator)
    vectors, values = vectors[:, 1:], values[1:]
    square = torch.randn(width, width, generator=generator, dtype=torch.float32)
    rotation = torch.linalg.qr(square).Q[: len(values)]
    found = F.normalize(vectors * values.sqrt() @ rotation)
    return found * occurrences.informative()[:, None]


def _strongest(
    occurrences: Occurrences, count: int, generator: torch.Generator
) -> tuple[Float[Tensor, "directions"], Float[Tensor, "entries directions"]]:
    """The largest singular values of the matrix, and their left singular vectors.

    `Occurrences.weights` describes the matrix. Each vector has a number for each sub-word. There
    are `count` singular values, the largest first, or fewer if there are fewer sub-words or pairs.
    In each vector, the number with the largest absolute value is made positive, because the signs
    that the library returns depend on its version and its threads.
    """
    per_pair, per_entry = _products(occurrences)
    entries, pairs = len(occurrences.entry_counts), len(occurrences.pair_counts)
    size = entries, min(count + SPARE, entries, pairs)
    basis = torch.randn(size, generator=generator, dtype=torch.float32)
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(per_entry(per_pair(basis))).Q
    seen = per_pair(basis)
    squares, turn = torch.linalg.eigh(seen.mT @ seen)
    order = squares.argsort(descending=True)[:count]
    vectors = basis @ turn[:, order]
    largest = vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True))
    return squares[order].clamp(min=0).sqrt(), vectors * largest.sign()


_Product = Callable[[Tensor], Tensor]


def _products(occurrences: Occurrences) -> tuple[_Product, _Product]:
    """Two functions that multiply a tensor: by the transposed matrix, and by the matrix itself."""
    weights = occurrences.weights()
    order = occurrences.pairs.argsort(stable=True)
    entries_by_pair, weights_by_pair = occurrences.entries[order], weights[order]

    def per_pair(x: Float[Tensor, "entries width"]) -> Float[Tensor, "pairs width"]:
        return _sums(x, entries_by_pair, weights_by_pair, occurrences.pair_counts)

    def per_entry(x: Float[Tensor, "pairs width"]) -> Float[Tensor, "entries width"]:
        return _sums(x, occurrences.pairs, weights, occurrences.entry_counts)

    return per_pair, per_entry


def _sums(
    rows: Float[Tensor, "rows width"],
    chosen: Int[Tensor, "terms"],
    weights: Float[Tensor, "terms"],
    counts: Int[Tensor, "sums"],
) -> Float[Tensor, "sums width"]:
    """Weighted sums of rows: sum 0 adds the first `counts[0]` terms, sum 1 the next `counts[1]`.

    Term i is the row of `rows` with the index `chosen[i]`, multiplied by `weights[i]`.
    """
    starts = counts.cumsum(0) - counts
    return F.embedding_bag(chosen, rows, starts, mode="sum", per_sample_weights=weights)
