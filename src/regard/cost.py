"""§6.1, Table 2: the cost of training, measured in two ways that are never mixed.

The *counted* operations are those of all matrix products in training; their number follows from the
sizes of the model and of the text. The *estimate* is the number that Table 2 prints: the time of
training, times the number of devices, times the speed in single precision that a device sustains.
The time includes all waiting, and much of the work may be done in a precision that is faster than
single precision. So the two numbers may differ by a large factor, in either direction.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.recipe import ModelRecipe
from regard.sizes import BLOCKED_FROM, family_sizes

Lengths = Sequence[int] | NDArray[Any]


class Flop(NamedTuple):
    """Numbers of floating-point operations to train for one epoch on some sentence pairs."""

    weights: int
    """Operations of products with weights: projections, feed-forward networks and logits."""
    attention: int
    """Operations of the products Q K^T and softmax(Q K^T / sqrt(d_k)) V or, if the model is not a
    Transformer, of its attention. The decoder's mask excludes the scores of later positions, but
    they count, too, because they are computed."""


def flop(model: ModelRecipe, vocabulary: int, sources: Lengths, targets: Lengths) -> Flop:
    """Count the operations of one epoch of training on sentence pairs, with one pass over each.

    `vocabulary` is the size of the target's vocabulary. `sources` and `targets` are the lengths of
    the pairs' sentences in tokens, without padding. A multiply-add is two operations. Only matrix
    products (§3) are counted; for each product of the forward pass, the backward pass has two.
    """
    source, target = np.asarray(sources, np.int64), np.asarray(targets, np.int64)
    weights = _with_weights(model, vocabulary, int(source.sum()), int(target.sum()))
    if model.family != "transformer":
        return Flop(weights, 6 * family_sizes(model).pair * int((target * source).sum()))
    own_source = _own_pairs(model, source, 3)
    own_target = _own_pairs(model, target, 2 if model.causal else 3)
    encoder = model.layers * _widths(model) * int(own_source.sum())
    pairs = int((own_target + target * source).sum())
    decoder = model.decoder_layers * _widths(model.decoder) * pairs
    return Flop(weights, 6 * (encoder + decoder))


def _own_pairs(model: ModelRecipe, lengths: NDArray[Any], windows: int) -> NDArray[Any]:
    """For each sentence length, the number of pairs of positions whose scores are computed.

    The scores are those of self-attention. If self-attention is restricted (§4), a sentence is
    divided into blocks of `model.neighbourhood` / 2 positions. If there are more than BLOCKED_FROM
    blocks, each block of queries is multiplied with only `windows` blocks of keys. Otherwise, and
    without the restriction, each query is multiplied with all keys.
    """
    if not model.neighbourhood:
        return lengths * lengths
    width = max(1, model.neighbourhood // 2)
    by_blocks = -(-lengths // width) * windows * width**2
    return np.where(lengths <= BLOCKED_FROM * width, lengths * lengths, by_blocks)


def _widths(model: ModelRecipe) -> int:
    """The widths of a key and a value, added up over all heads of a layer."""
    return model.heads * (model.d_k + model.d_v)


def _of_a_token(model: ModelRecipe) -> int:
    """The multiply-adds that one token takes, in products with the weights of one layer.

    The weights of attention to the encoder's output are not included.
    """
    return 2 * model.d_model * (_widths(model) + model.d_ff)


def _with_weights(model: ModelRecipe, vocabulary: int, source: int, target: int) -> int:
    """`Flop.weights` for this many source and target tokens."""
    if model.family != "transformer":
        sizes = family_sizes(model)
        of_logits = vocabulary * model.d_model
        return 6 * (source * sizes.source + target * (sizes.target + of_logits))
    # Attention to the encoder's output has four projections. Two of them, to K and V, are computed
    # for each source token; the other two, to Q and from the joined heads, for each target token.
    # In all decoder layers together, the projections to K and V have `memory` weights, and the
    # other two projections have just as many.
    memory = model.decoder_layers * model.d_model * _widths(model.decoder)
    of_a_source = model.layers * _of_a_token(model) + memory
    of_a_target = model.decoder_layers * _of_a_token(model.decoder) + memory
    return 6 * (source * of_a_source + target * (of_a_target + vocabulary * model.d_model))


def flop_of_tokens(
    model: ModelRecipe,
    vocabulary: int,
    sources: Lengths,
    targets: Lengths,
    source_tokens: int,
    target_tokens: int,
) -> float:
    """Count the operations of a run that has learned from this many source and target tokens.

    One pass over each batch is counted, even if `training.consistency` makes two. `sources` and
    `targets` are the lengths of the sentences of all training pairs, in tokens, and `vocabulary` is
    the size of the target's vocabulary. Products with weights are counted for `source_tokens` and
    `target_tokens`. Products of attention are estimated: the number of these operations in an epoch
    is multiplied by the number of epochs, which is `target_tokens` divided by the number of target
    tokens of all pairs.
    """
    epoch = flop(model, vocabulary, sources, targets)
    share = target_tokens / max(1, int(np.sum(targets, dtype=np.int64)))
    return _with_weights(model, vocabulary, source_tokens, target_tokens) + share * epoch.attention


@dataclass(frozen=True)
class Cost:
    """The cost of a run: its counted operations, and the numbers for the estimate of Table 2."""

    counted_flop: float
    """The operations that `flop_of_tokens` counts (in the plan of a run, `flop`), times the number
    of passes over each batch."""
    seconds: float
    """Seconds of training in all commands of the run, with validating and saving, without averaging
    and tuning, and with preparing data if the command that trains does it; in the plan of a run,
    the seconds of its steps only."""
    devices: int
    """The number of processes that train together; if there are GPUs, each process has one."""
    single_precision_flop_per_second: float
    """The measured speed that a device sustains in a matrix product in fp32."""

    @property
    def estimated_flop(self) -> float:
        """The estimate of Table 2: seconds x devices x speed."""
        return self.seconds * self.devices * self.single_precision_flop_per_second

    def record(self) -> dict[str, float]:
        """The fields and the estimate, by the names that they have in a journal."""
        return asdict(self) | {"estimated_flop": self.estimated_flop}
