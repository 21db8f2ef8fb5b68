"""§6.1 and §6.3: decoding of sentences in batches, for translation and parsing.

Sentences of similar length are decoded together, in batches of a limited number of tokens. Several
batches may be decoded at the same time. Results are in the order of the sentences.

In this module, an arithmetic is an implementation of the model's equations (`Arithmetic`). A member
is one of the models of an ensemble, or the model itself if it is alone. A row is a hypothesis.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from regard.arithmetic.choose import for_few_rows, with_loops
from regard.arithmetic.exact import WIDTH
from regard.data.rows import Rows, one_per_row
from regard.division import SMALL_BATCH, Division, Found, by_length, useful_copies, usual_workers
from regard.encoder_decoder import EncoderDecoder
from regard.equations import Arithmetic
from regard.errors import RegardError
from regard.hypotheses import Hypothesis
from regard.machine.copies import can_be_copied
from regard.machine.devices import computes_beside, free_memory, is_out_of_memory
from regard.machine.threads import computing_with
from regard.recipe import SearchRecipe
from regard.search import Steppable

if TYPE_CHECKING:
    from regard.arithmetic.few_rows import FewRows

COPIES_FROM = 4096
"""On a CPU, a text of at least this many source tokens may be decoded by copies (forks) of this
process, each on one core. Starting and ending copies takes 0.05 s; unlike threads, copies do not
wait for each other's Python code."""
LOOPS_FROM = 8192
"""For a text of at least this many source tokens, threads and copies with one core compute by the
loops of `arithmetic.one_core`, which load in 0.25 s. These loops are used only if `exact` is False:
they round differently from PyTorch, so the last bits of a sentence's results depend on the length
of the whole text."""
FEW_FROM = 4096
"""The compiled loops of `arithmetic.few_rows.FewRows` decode batches of few rows. In bf16 and int8,
they do so only if `exact` is False, and only from the first text of at least LOOPS_FROM source
tokens on, or after this many source tokens have been decoded; a server uses them from the start. In
fp32, they decode every text, if they can be used, so that a sentence has the same result whatever
the length of the text. The loops load in 0.3 to 1 s; the first time on a machine, they compile in
15 to 45 s."""
FEW_TOKENS = 512
"""A batch for `FewRows` has at most this many source tokens; fewer if the beam is above 4. A longer
sentence is a batch of its own."""
Search = Callable[[Rows, Int[Tensor, " sentences"], list[int]], Found]
"""A function that searches a batch. Its arguments are the source, the maximum output length of each
sentence, and the index of each sentence in the text."""


class Searchable(Steppable[Rows, Any], Protocol):
    """A model that a search can use: an EncoderDecoder, an Ensemble, or a model in an engine."""

    @property
    def by(self) -> Arithmetic:
        """The `Arithmetic` that computes the model's equations."""

    @property
    def longest(self) -> int:
        """The largest number of positions that a sentence may have."""

    @property
    def device(self) -> torch.device:
        """The device that the parameters are on."""

    @property
    def members(self) -> tuple[EncoderDecoder, ...]:
        """The models of an ensemble, or a single model; empty if an engine holds the weights.

        Each of these models has an `Arithmetic` for its own weights.
        """


class Decoding:
    """A model and the recipe of its search, to decode sentences in batches.

    If `exact` is True, a sentence has the same result, to the last bit, in any batch. If it is
    None, this usually holds, too, but is not tested: on some processors, on a GPU, and with some
    variants of the model, results may depend on the batch. If `exact` is False, results may depend
    on the batch (see `translation.load`).

    Only one thread may use this object at a time: on a CPU, the object divides PyTorch's threads
    among batches, or starts copies of this process that decode the batches. In a process that was
    forked after the object was made, one thread computes.
    """

    def __init__(self, model: Searchable, recipe: SearchRecipe, exact: bool | None):
        self.model, self.recipe, self.exact = model, recipe, exact
        # A server sets this to False, because a fork would keep the server's sockets open.
        self.may_be_copied = True
        # The result of `batches_agree` for each pair of a beam and a number of threads.
        self._tried: dict[tuple[int, int], bool] = {}
        self._process = os.getpid()
        self._tokens = 0  # the number of source tokens decoded so far
        self._few_rows: list[FewRows] | None = None  # one for each member; None before use

    @property
    def one_by_one(self) -> bool:
        """Whether each batch has only one sentence.

        This is so if three things hold: `exact` is True, `FewRows` does not decode all batches, and
        `batches_agree` does not show that a sentence has the same results in any batch.
        """
        if not self.exact or self._all_by_few_rows:
            return False
        beam, threads = self.recipe.beam, torch.get_num_threads()
        if (beam, threads) not in self._tried:
            shares = {1, *(threads // workers for workers in range(1, usual_workers() + 1))}
            self._tried[beam, threads] = all(
                member.by.batches_agree(beam, shares) for member in self.model.members
            )
        return not self._tried[beam, threads]

    def window_of(self, wanted: int | None) -> int:
        """The number of sentences to read, sort and divide into batches together.

        It is `wanted` or, if `wanted` is None, `Arithmetic.window`, which suits the device. Raises
        ValueError for a number below 1.
        """
        if wanted is None:
            return self.model.by.window
        if wanted < 1:
            raise ValueError(f"window = {wanted} is below 1")
        return wanted

    def hypotheses(
        self, sources: Sequence[Sequence[int]], search: Search, *, here: bool = False
    ) -> Found:
        """The hypotheses that `search` finds for each source, in the order of `sources`.

        A source is a list of ids that ends in </s>. Unless `here` is True, `search` may run in a
        copy of this process; if `search` changes objects of the copy, the changes are lost. Raises
        RegardError if a single sentence does not fit the memory, or if a copy was killed; and the
        errors of `search`.
        """
        found: dict[int, list[Hypothesis]] = {}
        too_large = []
        with ExitStack() as stack:
            if os.getpid() != self._process:  # PyTorch would wait for threads that a fork lacks
                stack.enter_context(computing_with(1))
            division = self._division(sources, may_copy=not here)
            # GPU streams must not wait for tables of positional encodings, and a step in a CUDA
            # graph cannot make such tables.
            if division.streams or self.model.by.granule.steps > 1:
                self._make_tables(sources)
            for member in self.model.members if division.loops else ():
                stack.enter_context(member.computing_by(with_loops(member.by)))
            for member, few_rows in zip(self.model.members, division.few, strict=False):
                stack.enter_context(member.stepping_by(few_rows))
            decoded = division.run(partial(self._search, sources, search))
            stack.enter_context(closing(decoded))
            for batch, best_of_each in zip(division.batches, decoded, strict=True):
                if best_of_each is None:
                    too_large.append(batch)
                else:
                    found.update(zip(batch, best_of_each, strict=True))
            if too_large:  # all batches have ended by now
                free_memory(self.model.device)
            for batch in too_large:
                found.update(zip(batch, self._alone(sources, search, batch), strict=True))
        self._tokens += sum(map(len, sources))
        return [found[i] for i in range(len(sources))]

    def prepare_few_rows(self) -> None:
        """Decode batches of few rows by `FewRows` from this call on.

        Nothing changes if `for_few_rows` cannot make a `FewRows` for every member.
        """
        if self._few_rows is None:
            made = [for_few_rows(member) for member in self.model.members]
            self._few_rows = [] if None in made else made

    @property
    def _all_by_few_rows(self) -> bool:
        """Whether `FewRows` decodes all batches; a sentence then has the same result in any batch.

        If the limits of `few_rows_limits` exclude no batch, the first call makes the `FewRows` of
        all members.
        """
        limits = self.model.by.few_rows_limits
        if not limits or limits.products < math.inf or self._recorded:
            return False
        self.prepare_few_rows()
        return self._few_rows != []

    def _few(
        self, sources: Sequence[Sequence[int]], tokens: int
    ) -> tuple[list[FewRows], list[list[int]]]:
        """The `FewRows` of all members, and batches for them.

        The first list is empty if the members' own modules decode the text, which has `tokens`
        source tokens.
        """
        limits = self.model.by.few_rows_limits
        if not limits or self._recorded or not sources:
            return [], []
        batches = self._batches(sources, limits.tokens, FEW_TOKENS, torch.get_num_threads())
        rows = max(map(len, batches), default=0) * self.recipe.beam
        outputs = (member.output_matrix.weight.numel() for member in self.model.members)
        pays = self._tokens >= FEW_FROM or tokens >= LOOPS_FROM or limits.products == math.inf
        if pays and rows * max(outputs) <= limits.products:
            self.prepare_few_rows()
        few = self._few_rows or []
        fits = all(rows * one.weight_count <= limits.products for one in few)
        return (few, batches) if fits else ([], [])

    def _division(self, sources: Sequence[Sequence[int]], *, may_copy: bool) -> Division:
        by, threads, tokens = self.model.by, torch.get_num_threads(), sum(map(len, sources))
        workers = by.streams.count if by.streams else usual_workers() if self._by_cores else 1
        may_copy = may_copy and self._can_copy(tokens)
        few, batches = self._few(sources, tokens)
        alone = self._on_one_core(few)
        if not few:
            sizes = SMALL_BATCH, self._most_tokens()
            batches = self._batches(sources, *sizes, threads if may_copy else workers)
        copies = useful_copies(len(batches)) if may_copy else 0
        if few or alone:
            workers = threads  # a loop uses one core, and so does an exact batch of one sentence
        share = 1 if copies or alone else threads // max(1, min(workers, len(batches)))
        loops = self._may_loop(tokens, share)
        return Division(batches, few, loops, copies, workers, share, by.streams)

    @property
    def _by_cores(self) -> bool:
        """Whether several batches are decoded at the same time, each by some cores of a CPU."""
        return self.model.by.side_by_side and not computes_beside(self.model.device)

    def _on_one_core(self, few: list[FewRows]) -> bool:
        """Whether one core decodes each batch, so that no sum is divided among threads.

        `few` has the `FewRows` that decode the batches; it is empty if the models' modules decode
        them. In fp32, one core decodes each batch of `FewRows`, too: outside the compiled loops, an
        `Ensemble` and `WellFormed` make sums by PyTorch, which could be divided among threads.
        """
        return self._by_cores and (self.one_by_one or bool(few and self._all_by_few_rows))

    def _most_tokens(self) -> int:
        """The largest number of source tokens in a batch; `_batches` lowers it for beams above 4.

        On a GPU, the members of an ensemble share the memory, so this number is the usual number
        divided by the number of members.
        """
        by = self.model.by
        return by.batch_tokens // len(self.model.members) if by.streams else by.batch_tokens

    def _may_loop(self, tokens: int, share: int) -> bool:
        """Whether workers compute by compiled loops, if each has `share` cores."""
        return share == 1 and self.exact is False and tokens >= LOOPS_FROM

    def _can_copy(self, tokens: int) -> bool:
        """Whether copies of this process may be used to decode this many source tokens."""
        pays = self._by_cores and tokens >= COPIES_FROM
        return pays and self.may_be_copied and not self._recorded and can_be_copied()

    @property
    def _recorded(self) -> bool:
        """Whether `view.recording` is recording the attention weights of a member's modules."""
        return any("whole_rows" in vars(member) for member in self.model.members)

    def _batches(
        self, sources: Sequence[Sequence[int]], least: int, most: int, workers: int
    ) -> list[list[int]]:
        if self.one_by_one:
            return [[i] for i in range(len(sources))]
        return by_length(sources, most * 4 // max(4, self.recipe.beam), workers, least)

    def _make_tables(self, sources: Sequence[Sequence[int]]) -> None:
        """Make the tables of positional encodings now, so that later steps find them ready."""
        longest = max(map(len, sources), default=0) + WIDTH + self.recipe.max_extra
        for member in self.model.members:
            member.make_tables(longest + member.by.granule.steps)

    def _search(
        self, sources: Sequence[Sequence[int]], search: Search, batch: list[int]
    ) -> Found | None:
        """The hypotheses for a batch of the sources; None if the batch does not fit the memory."""
        rows = self._rows([sources[i] for i in batch])
        limits = (rows.segments != 0).sum(1) + self.recipe.max_extra
        try:
            return search(rows, limits.clamp(max=self.model.longest), batch)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        free_memory(self.model.device)
        return None

    def _alone(self, sources: Sequence[Sequence[int]], search: Search, batch: list[int]) -> Found:
        """The hypotheses for a batch that did not fit the memory beside other batches.

        The batch is decoded in halves, one after the other; a half that does not fit is halved
        again. Raises RegardError if a single sentence does not fit.
        """
        found: Found = []
        half = len(batch) // 2
        for some in (batch[:half], batch[half:]) if half else (batch,):
            best_of_each = self._search(sources, search, some)
            if best_of_each is None and not half:
                raise RegardError(
                    f"a sentence of {len(sources[batch[0]])} pieces does not fit the memory with "
                    f"search.beam = {self.recipe.beam}: lower that, or split the sentence"
                )
            found += self._alone(sources, search, some) if best_of_each is None else best_of_each
        return found

    def _rows(self, sources: Sequence[Sequence[int]]) -> Rows:
        rows = one_per_row(sources)
        # Pad to a multiple of WIDTH tokens, but not to more tokens than the model has positions.
        if self.exact is not False:
            width = rows.ids.shape[1]
            width = max(width, min(width + -width % WIDTH, self.model.longest))
            rows = Rows(*(F.pad(x, (0, width - x.shape[1])) for x in rows))
        return rows.to(self.model.device)
