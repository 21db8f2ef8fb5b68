"""A translator for an exported model that an engine computes: CTranslate2 or ONNX Runtime."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.arithmetic.cpu import Cpu
from regard.arithmetic.products import Products
from regard.data.characters import characters_in
from regard.data.rows import Rows
from regard.encoder_decoder import EncoderDecoder
from regard.engines.exported import Exported
from regard.errors import RegardError
from regard.hypotheses import Hypothesis
from regard.recipe import SearchRecipe
from regard.translation import PartialListener, Translation, Translator


class OneBatch(Cpu):
    """The arithmetic by which regard's search ranks hypotheses if an engine computes the model.

    One batch is decoded at a time, because the engine itself divides its work among the cores.
    """

    side_by_side = False
    logits_at_once = 2**18
    """`summarize` reads at most this many logits at a time (1 MiB in fp32), but at least a row."""


class EngineModel(ABC):
    """A model that an engine computes and that regard's search can use (`decoding.Searchable`).

    `longest` is the largest number of positions that a sentence may have, in source or output.
    """

    def __init__(self, longest: int):
        self.by, self.longest = OneBatch(Products()), longest
        self.device = torch.device("cpu")
        # The engine holds the weights, so regard has no networks here.
        self.members: tuple[EncoderDecoder, ...] = ()

    @abstractmethod
    def start(self, source: Rows) -> Any:
        """The state before the first token, with one row for each sentence."""

    @abstractmethod
    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """[rows, vocabulary] The logits of each row's next token, and the state after `tokens`.

        A row is a hypothesis. `tokens` [rows] has the last token of each row, which is <s> at the
        first step.
        """


class EngineTranslator(Translator):
    """A translator for an exported directory; an engine computes the model.

    Unfinished translations are not reported: the method `stream` accepts listeners in `on_partial`,
    but never calls them.
    """

    def __init__(self, model: EngineModel, exported: Exported):
        recipe = exported.recipe
        longest = min(recipe.data.max_length, model.longest)
        super().__init__(
            model, exported.tokenizer, recipe.search, longest, exact=False,
            characters=characters_in(exported.manifest),
        )  # fmt: skip

    @property
    @abstractmethod
    def versions(self) -> Mapping[str, str]:
        """Maps the name of the engine to its version.

        For CTranslate2, "computed" is also mapped to the number format of the computation.
        """

    @property
    def network(self) -> EncoderDecoder:
        """Always raise RegardError: an engine does not return attention weights."""
        raise RegardError("an engine shows no attention: leave out --engine and name the model")

    @abstractmethod
    def found(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        recipe: SearchRecipe,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each source, best first, by the search that `recipe` sets.

        A source is a list of ids that ends in </s>. `limits` has, for each source, the largest
        number of output tokens, </s> included. Raises RecipeError if `n_best` is not between 1 and
        the beam.
        """

    def _decode(
        self,
        sources: Sequence[Sequence[int]],
        n_best: int,
        listeners: Mapping[int, PartialListener],
    ) -> list[list[Translation]]:
        self.refuse_other_search()
        limits = [min(len(s) + self.recipe.max_extra, self.model.longest) for s in sources]
        return [self.texts(best) for best in self.found(sources, limits, self.recipe, n_best)]
