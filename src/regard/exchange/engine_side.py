"""Run an exported model in CTranslate2 or ONNX Runtime, to compare it with regard's model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard.data.rows import one_per_row
from regard.engines.translator import EngineTranslator
from regard.exchange.certificate import Sequences
from regard.recipe import SearchRecipe
from regard.text.tokenizer import EOS


class EngineSide:
    """A model that an engine computes, as one side of a comparison (`certificate.Side`).

    The engine, CTranslate2 or ONNX Runtime, computes the logits. CTranslate2 also searches, except
    in two rare cases; with ONNX Runtime, regard searches. `rules` are the settings of the search,
    but beam and alpha are given to the method `beam`.
    """

    def __init__(self, translator: EngineTranslator, rules: SearchRecipe):
        self._translator, self._rules = translator, rules

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of the engine and, for CTranslate2, the number format (`Side.versions`)."""
        return self._translator.versions

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source ids of each text, with </s> at the end, by the tokenizer of regard's model."""
        return [[*ids, EOS] for ids in self._translator.tokenizer.encode(texts)]

    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """[target, vocabulary] The logits of the next token, after each token of `target`.

        `target` begins with <s>. The engine computes the logits in one step for each token.
        """
        model, found = self._translator.model, []
        state = model.start(one_per_row([source]))
        for token in target:
            logits, state = model.step(torch.tensor([token]), state.select(torch.tensor([[0]])))
            found.append(logits[0].numpy())
        return np.stack(found)

    def beam(self, sources: Sequences, most: int, beam: int, alpha: float) -> list[list[int]]:
        """The best output of the translator's search for each source; see `Side.beam`."""
        rules = self._rules.but(beam=beam, alpha=alpha)
        found = self._translator.found(sources, [most] * len(sources), rules, 1)
        return [list(best.tokens) for [best] in found]
