"""The paper's equations that have several implementations, as one interface.

`Arithmetic` has a method for each equation. `regard.arithmetic` has the implementations: the
definitions (`Plain`), and faster ones for each kind of machine. When a model is opened or trained,
`arithmetic.choose` selects an implementation, which becomes the attribute `by` of all `Computing`
modules of the model. An implementation is called an arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.cache import Cache
from regard.granules import ONE_STEP, Granule


class Mask:
    """The keys that each query may attend to, in the form that an `Arithmetic` computes with.

    A mask is made once, and all layers use it.
    """

    def __init__(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]):
        """`allowed` is True where a query may attend; a query without any key has output 0."""
        self.allowed = allowed


class Ranking(NamedTuple):
    """The most likely continuations of each sentence's hypotheses, the most likely first."""

    parents: Int[Tensor, "sentences count"]
    """The hypothesis that each continuation extends, as an index among those of the sentence."""
    tokens: Int[Tensor, "sentences count"]
    """The token that each continuation adds."""
    log_p: Float[Tensor, "sentences count"]
    """log P of each continuation, that is, of the hypothesis together with its new token."""


class Adam(NamedTuple):
    """The constants of Adam (§5.3)."""

    beta1: float
    beta2: float
    epsilon: float


class Moments(NamedTuple):
    """Adam's moments (§5.3) of some or all weights, in flat fp32 buffers."""

    updates: Float[Tensor, ""]
    """The number of updates that were made."""
    mean: Float[Tensor, " weights"]
    variance: Float[Tensor, " weights"]


class Learned(NamedTuple):
    """All or some weights of a model in training, with gradient and moments, in flat buffers."""

    master: Float[Tensor, " weights"]
    """The weights in fp32."""
    weights: Float[Tensor, " weights"]
    """The weights that the model computes with: `master` itself, or a rounded copy."""
    gradient: Float[Tensor, " weights"]
    """The gradient, summed over tokens, in fp32 or in the precision of `weights`."""
    moments: Moments


class FewRowsLimits(NamedTuple):
    """Limits of the batches that compiled loops decode in place of a model's modules.

    Within the limits, the loops are faster; in fp32, they decode all batches.
    """

    tokens: int
    """The limit of source tokens in a batch is lowered to give more cores some work, but not below
    this number."""
    products: float
    """The most multiplications in a step: the number of rows times the number of weights. With inf,
    the loops decode all batches, from the first one on."""


class Together(Protocol):
    """Threads that work at the same time."""

    @property
    def count(self) -> int:
        """The number of threads."""

    def map(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any, None, None]:
        """Yield `work(item)` for each item, in order."""


class Arithmetic(ABC):
    """An implementation of the paper's equations."""

    window: int = 2048
    """The default number of sentences to read, sort by length and divide into batches together."""
    batch_tokens: int = 2048
    """The most source tokens that decoding puts in one batch, padding included; fewer if the beam
    is above 4. A longer sentence is a batch of its own."""
    side_by_side: bool = True
    """Whether decoding computes several batches at the same time, each with some of the cores."""
    streams: Together | None = None
    """The threads that decode batches on a GPU at the same time; None if there are no such threads,
    as on a CPU."""
    few_rows_limits: FewRowsLimits | None = None
    """The limits of batches that `arithmetic.few_rows` decodes; None if it decodes no batch."""
    granule: Granule = ONE_STEP
    """The granule of a search: the steps that a search makes before the host reads its results."""

    @abstractmethod
    def mask(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]) -> Mask:
        """The mask that `attend` takes; `allowed` is True where a query may attend (§3.2)."""

    @abstractmethod
    def mask_of_segments(
        self,
        queries: Int[Tensor, "rows queries"],
        keys: Int[Tensor, "rows keys"],
        *,
        causal: bool = False,
    ) -> Mask:
        """The mask with which a position attends only to positions of its own segment.

        `queries` and `keys` hold the segment number of each position. Segments are the sentences of
        a row, numbered from 1; padding has the number 0, and attends only to padding. With
        `causal`, a position does not attend to later positions (§3.2.3).
        """

    @abstractmethod
    def cache(
        self,
        keys: Float[Tensor, "sentences heads slots d_k"],
        values: Float[Tensor, "sentences heads slots d_v"],
    ) -> Cache:
        """A cache that holds these keys and values in the form that `attend` takes."""

    @abstractmethod
    def attend(
        self,
        query: Float[Tensor, "rows heads queries d_k"],
        key: Float[Tensor, "rows heads keys d_k"],
        value: Float[Tensor, "rows heads keys d_v"],
        mask: Mask,
        dropout: float = 0.0,
    ) -> Float[Tensor, "rows heads queries d_v"]:
        """Equation (1): softmax(Q K^T / sqrt(d_k)) V, with dropout on the attention weights.

        `key` and `value` may end in unused slots of a cache, which the mask does not cover.
        """

    @abstractmethod
    def weigh(
        self,
        scores: Float[Tensor, "rows heads queries keys"],
        values: Float[Tensor, "rows heads keys d_v"],
        mask: Mask,
        dropout: float = 0.0,
    ) -> Float[Tensor, "rows heads queries d_v"]:
        """softmax(scores) V, with dropout on the weights, for scores that are not dot products.

        Such scores are those of additive attention (§3.2.1).
        """

    @abstractmethod
    def lstm(
        self, x: Float[Tensor, "rows length inputs"], of_input: nn.Linear, of_state: nn.Linear
    ) -> Float[Tensor, "rows length width"]:
        """The outputs of an LSTM over each row, from the first position to the last.

        At each position, `regard.recurrence.lstm_cell` gets the gates of_input(x) + of_state(h),
        where h is the output at the position before.
        """

    @abstractmethod
    def linear(
        self, x: Float[Tensor, "*batch inputs"], *layers: nn.Linear, relu: bool = False
    ) -> Float[Tensor, "*batch outputs"]:
        """x W^T + b of one or more layers, side by side in the last dimension.

        With `relu`, the result is max(0, x W^T + b), the inner part of equation (2).
        """

    @abstractmethod
    def add_norm(
        self,
        x: Float[Tensor, "*batch d_model"],
        y: Float[Tensor, "*batch d_model"],
        norm: nn.LayerNorm,
        dropout: float = 0.0,
    ) -> Float[Tensor, "*batch d_model"]:
        """LayerNorm(x + Dropout(y)) (§3.1, §5.4)."""

    @abstractmethod
    def drop(self, x: Float[Tensor, "*shape"], dropout: float) -> Float[Tensor, "*shape"]:
        """Dropout(x) (§5.4): 0 with the probability `dropout`, else x / (1 - dropout)."""

    @abstractmethod
    def logits(
        self,
        x: Float[Tensor, "*batch d_model"],
        embedding: nn.Embedding,
        bias: Float[Tensor, " vocabulary"] | None = None,
    ) -> Float[Tensor, "*batch vocabulary"]:
        """x E^T, the linear layer before the softmax, which shares the embeddings E (§3.4).

        `bias`, if given, is added; the paper has none.
        """

    @abstractmethod
    def cross_entropy(
        self,
        states: Float[Tensor, "passes_x_tokens d_model"],
        embedding: Float[Tensor, "vocabulary d_model"],
        labels: Int[Tensor, " tokens"],
        smoothing: float,
        consistency: float = 0.0,
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The smoothed loss and the plain loss, in nats, summed over tokens (§5.4).

        The logits are the product of `states` and the transposed `embedding`. Labels of 0 are
        padding and do not count. Only the smoothed loss has a gradient. If `consistency` is not 0,
        the losses are those of `loss.consistency_loss` with this weight, and `states` holds the
        states of two passes over all tokens, one pass after the other.
        """

    @abstractmethod
    def most_likely(
        self,
        live: Float[Tensor, "sentences beams"],
        logits: Float[Tensor, "rows vocabulary"],
        never: tuple[int, ...],
        count: int,
    ) -> Ranking:
        """The `count` most likely continuations of each sentence, by live + log softmax(logits).

        `live` is log P of each hypothesis (§6.1). Tokens in `never` are left out. Equally likely
        continuations are in the order of their hypotheses, then of their tokens. If a sentence has
        fewer continuations than `count`, `log_p` is -inf in the remaining columns of the result.
        """

    choose: Callable[..., Any]
    """Choose the hypotheses that are kept after a step (§6.1), as `hypotheses.choose_best` does.

    The arguments and the result are those of `choose_best`, except that there is no `rank`.
    """

    @abstractmethod
    def adam(self, learned: Learned, constants: Adam, rate: float, tokens: int | Tensor) -> None:
        """Update the `master` weights and the moments of `learned` by Adam (§5.3), in place.

        Adam's gradient is `learned.gradient` divided by `tokens`. If `learned.weights` is a rounded
        copy of `learned.master`, this copy is made anew. Then the gradient is set to 0.
        """

    def batches_agree(self, beam: int, threads: Iterable[int]) -> bool:
        """Whether a test shows that a sentence decodes to the same bits in any batch.

        The test is made with this beam and each of these numbers of threads. An `Arithmetic`
        that has no such test returns False.
        """
        return False


class Computing(nn.Module):
    """A module whose attribute `by` is the `Arithmetic` that computes the module's equations."""

    by: Arithmetic

    def dropped(self, x: Float[Tensor, "*shape"], dropout: float) -> Float[Tensor, "*shape"]:
        """Dropout(x) in training; x otherwise."""
        return self.by.drop(x, dropout) if self.training and dropout else x
