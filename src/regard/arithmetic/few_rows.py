"""Search on a CPU by compiled loops for the encoder and the decoder: in fp32, or with few rows.

A row is a hypothesis. In fp32, these loops decode any number of rows; in bf16 and int8, they decode
only few rows (`few_rows_limits`). With a small model, PyTorch needs thousands of operations for a
sentence, and each takes longer to start than to compute. `FewRows` does the work of
`Transformer.start` and `Transformer.step` by a few calls of loops. Its activations are in fp32,
even if the weights are in bf16.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.arithmetic.layouts import LaidOut
from regard.arithmetic.loops import few_rows as loops
from regard.arithmetic.loops import integers
from regard.arithmetic.loops.products import in_blocks
from regard.arithmetic.loops.steps import make_steps
from regard.arithmetic.one_core import OneCoreInference, array, arrays
from regard.granules import ONE_STEP, Granule, StepRules, Value
from regard.hypotheses import Hypotheses
from regard.variants import SmoothFeedForward

LOOPED_STEPS = 8
"""The most steps of a search that one loop makes. A sentence that ends before the loop ends stays
in the batch at least until the loop ends."""
IN_BF16 = "uint16"
"""The type of the arrays that hold weights in bf16."""
ROOM_FOR = 32
"""At first, each sentence gets space for the keys and values of this many steps with a beam of 4.
When the space of all sentences together is full, it is at least doubled."""


class _Past:
    """The keys and values of decoded tokens: a key and a value for each layer and slot.

    A step fills one slot for each row. In each layer, a slot has `numbers` = heads * (d_k + d_v)
    numbers: the key and the value of one token, for all heads.
    """

    def __init__(self, layers: int, slots: int, numbers: int):
        self.stored, self.filled = np.empty((layers, slots, numbers), np.float32), 0

    def take(self, slots: int) -> int:
        """Reserve the next `slots` free slots; return the index of the first of them."""
        first, self.filled = self.filled, self.filled + slots
        layers, there, numbers = self.stored.shape
        if self.filled > there:
            more = np.empty((layers, max(self.filled, 2 * there), numbers), np.float32)
            more[:, :first] = self.stored[:, :first]
            self.stored = more
        return first


@dataclass(frozen=True)
class FewState:
    """The state of decoding by `FewRows`; a hypothesis has the row number sentence * beams + beam.

    Keys and values stay in their slots of `past`: `select` selects rows of `ancestry` and
    `sources` only.
    """

    past: _Past
    ancestry: NDArray[np.int64]
    """[rows, length] The slots of `past` that hold the tokens of each hypothesis."""
    memory: NDArray[np.float32]
    """[layers, positions, heads * (d_k + d_v)] A key and a value for each source position. The
    positions of all sentences follow one another."""
    sources: NDArray[np.int64]
    """[rows, 2] The first position of `memory` that each row attends to, and the last such position
    plus 1."""

    @property
    def length(self) -> int:
        """The number of tokens decoded so far, <s> included."""
        return self.ancestry.shape[1]

    def select(self, rows: Int[Tensor, "sentences beams"]) -> FewState:
        """The state that keeps only `rows`, in this order."""
        these = array(rows.flatten())
        return replace(self, ancestry=self.ancestry[these], sources=self.sources[these])


class FewRows:
    """The layers of a Transformer, computed by compiled loops, for a search on a CPU.

    This object has a copy of the model's weights in another layout. In int8, the weights are
    rounded to 8 bits. The loops also round the inputs of linear layers, but only if the processor
    has VNNI or AVX2 (`loops.integers`); the model's own modules always round these inputs. In fp32,
    the result of a row does not depend on the other rows. `suits_few_rows(model)` must be True, and
    `model.by.products` must be a `LaidOut`.
    """

    def __init__(self, model: Any):
        self.model = model
        """The model whose layers this object computes."""
        self._epsilon = model.decoder[0].add_norm_1.norm.eps
        self._encoder, self._decoder = _Stack(model.encoder), _Stack(model.decoder)
        products, output = model.by.products, (model.output_matrix,)
        self.by = OneCoreInference(products, model.by.keep_in)
        """The `Arithmetic` with which a search ranks and chooses hypotheses, by compiled loops."""
        crossing = (layer.cross_attention for layer in model.decoder)
        self._memory = _in_order(products, [(module.W_k, module.W_v) for module in crossing])
        self._of_encoder = _in_order(products, _matrices(model.encoder))
        self._of_decoder = _in_order(products, _matrices(model.decoder))
        dtype = str(self._of_decoder[0].dtype)
        # In bf16, oneDNN computes the logits: a loop would take longer.
        self._output = None if dtype == IN_BF16 else _in_order(products, [output])
        if self._output:
            self._make_steps, self.by.granule = make_steps(dtype), LoopedSteps(self)
        self._encode_layers = loops.encode_layers(dtype)
        self._decode_layers = loops.decode_layers(dtype)
        self._project = loops.project(dtype)
        self.weight_count = model.output_matrix.weight.numel() + sum(
            layer.in_features * layer.out_features
            for part in _matrices(model.decoder)
            if not isinstance(part, nn.LayerNorm)
            for layer in cast(tuple[nn.Linear, ...], part)
        )
        """The number of weights that one step of decoding multiplies each row by."""

    def start(self, source: Any) -> FewState:
        """Encode the sentences of `source`, a `Rows` with one sentence in each row.

        The result is the state before the first token. It holds the keys and values of the
        encoder's output for each decoder layer.
        """
        tokens = source.segments != 0
        sentences, ends = len(tokens), tokens.sum(1).cumsum(0)
        sources = array(torch.stack([ends - tokens.sum(1), ends], 1))
        if not self.model.source_end:
            sources[:, 1] -= 1  # no query attends to the source's </s>
        embedded = self.model.embedding(source.ids, source.positions, source.ids.shape[1])
        x = array(embedded[tokens].float())
        self._encode_layers(x, *self._of_encoder, self._encoder.sizes, self._epsilon, sources)
        sizes = self._decoder
        memory = np.empty((sizes.layers, len(x), sizes.key_and_value), np.float32)
        self._project(x, *self._memory, memory)
        past = _Past(sizes.layers, 4 * ROOM_FOR * sentences, sizes.key_and_value)
        return FewState(past, np.empty((sentences, 0), np.int64), memory, sources)

    def step(
        self, tokens: Int[Tensor, " rows"], state: FewState
    ) -> tuple[Float[Tensor, "rows vocabulary"], FewState]:
        """The logits of the next token of each row, and the new state.

        `tokens` has the last token of each row.
        """
        first = state.past.take(len(tokens))
        slots = np.arange(first, first + len(tokens))
        ancestry = np.concatenate([state.ancestry, slots[:, None]], axis=1)
        side = self.model.target_side
        y = np.empty((len(tokens), side.tokens.embedding_dim), np.float32)
        position = side.table(state.length + 1)[state.length].float()
        loops.embed(array(tokens), array(side.tokens.weight), side.scale, array(position), y)
        self._decode_layers(
            y, *self._of_decoder, self._decoder.sizes, self._epsilon,
            state.past.stored, ancestry, state.memory, state.sources,
        )  # fmt: skip
        return self._logits(y), replace(state, ancestry=ancestry)

    def steps(self, rules: Any, beams: Any, times: int) -> Any:
        """The result of `times` calls of `rules.unseen_step`, computed by one loop.

        `rules` are the `Rules` and `beams` the `_Beams` of `regard.search`. The model's weights
        must not be in bf16.
        """
        state, side, choosing = beams.state, self.model.target_side, rules.choosing
        first = state.past.take(beams.live.rows.numel() * times)
        positions = side.table(state.length + times)[state.length :].float()
        signs = rules.count, rules.eos, rules.pad, choosing.finish_by_beam
        never = np.array(rules.never, np.int64)
        before = arrays(beams.before)
        *hypotheses, going, ancestry = self._make_steps(
            arrays(beams.live), arrays(beams.finished), before, array(beams.going),
            array(beams.max_lengths), times, int(beams.length),
            (*signs, array(choosing.penalty), never),
            (array(side.tokens.weight), np.float32(side.scale), array(positions)),
            (*self._of_decoder, self._decoder.sizes, np.float32(self._epsilon)), self._output,
            (state.past.stored, first), state.ancestry, state.memory, state.sources,
        )  # fmt: skip
        live, finished = (Hypotheses(*map(torch.from_numpy, one)) for one in hypotheses)
        return beams._replace(
            state=replace(state, ancestry=ancestry),
            length=beams.length + times, live=live, finished=finished,
            before=Hypotheses(*map(torch.from_numpy, before)), going=torch.from_numpy(going),
        )  # fmt: skip

    def _logits(self, y: NDArray[np.float32]) -> Float[Tensor, "rows vocabulary"]:
        if self._output is None:
            states = torch.from_numpy(y).to(self.model.output_matrix.weight.dtype)
            logits: Tensor = self.model.logits(states)
            return logits
        out = np.empty((1, len(y), self.model.vocabulary), np.float32)
        self._project(y, *self._output, out)
        return torch.from_numpy(out[0])


def compile_loops() -> None:
    """Compile all loops of `regard.arithmetic`, for weights of all types.

    Later commands load the loops from a cache.
    """
    for weights in "float32", IN_BF16, integers.ROUNDED:
        for loop in loops.encode_layers, loops.decode_layers, loops.project:
            loop(weights)
        if weights != IN_BF16:
            make_steps(weights)


class LoopedSteps(Granule):
    """A group of steps of a search (`regard.granules`) that one loop of `FewRows` computes."""

    def __init__(self, few: FewRows):
        super().__init__(LOOPED_STEPS)
        self._few = few

    def suiting(self, model: Any) -> Granule:
        """This granule if its `FewRows` was made for `model`, else `ONE_STEP`.

        An ensemble, or a model that changes another model's logits, gets `ONE_STEP`.
        """
        return self if model is self._few.model else ONE_STEP

    def run(self, rules: StepRules[Value], value: Value, times: int) -> Value:
        """Make `times` steps of a search by its `rules`, from `value`; return the result."""
        return cast(Value, self._few.steps(rules, value, times))


class _Stack:
    """The sizes of the layers of an encoder or a decoder."""

    def __init__(self, layers: Any):
        attention, feed_forward = layers[0].self_attention, layers[0].feed_forward
        swish = isinstance(feed_forward, SmoothFeedForward)
        self.layers = len(layers)
        self.key_and_value = attention.heads * (attention.d_k + attention.d_v)
        self.sizes = np.array([
            self.layers, attention.heads, attention.d_k, attention.d_v,
            feed_forward.W_1.out_features, loops.SWISH if swish else loops.RELU,
        ])  # fmt: skip


_Part = tuple[nn.Module, ...] | nn.LayerNorm
"""Either a LayerNorm, or linear layers whose weights are joined into one matrix."""


def _matrices(layers: Iterable[Any]) -> Iterator[_Part]:
    """The matrices and LayerNorms of the layers, in the order in which the loops read them.

    W_k and W_v of attention to the encoder's output are left out: the loop `project` uses them, and
    reads them from an array of their own.
    """
    for layer in layers:
        own, cross = layer.self_attention, getattr(layer, "cross_attention", None)
        yield own.W_q, own.W_k, own.W_v
        yield (own.W_o,)
        yield layer.add_norm_1.norm
        if cross is not None:
            yield (cross.W_q,)
            yield (cross.W_o,)
            yield layer.add_norm_2.norm
        yield (layer.feed_forward.W_1,)
        yield (layer.feed_forward.W_2,)
        yield (layer.add_norm_2 if cross is None else layer.add_norm_3).norm


def _in_order(
    products: LaidOut, parts: Iterable[_Part]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    """Two flat arrays: one of all matrices; one of all scales, biases and parameters of LayerNorms.

    `integers.pack` arranges a matrix of 8-bit weights if the processor has VNNI or AVX2;
    `loops.products.in_blocks` arranges all other matrices.
    """
    weights, numbers = list[NDArray[Any]](), list[Tensor]()
    for part in parts:
        if isinstance(part, nn.LayerNorm):
            numbers += [part.weight.detach(), part.bias.detach()]
        else:
            weight, scale, bias = products.dense(part)
            packs = weight.dtype == torch.int8 and integers.ROUNDED == "int32"
            weights.append((integers.pack if packs else in_blocks)(array(weight)))
            numbers += [scale, bias]
    together = weights[0] if len(weights) == 1 else np.concatenate(weights)
    return together, array(torch.cat([each.float() for each in numbers]))
