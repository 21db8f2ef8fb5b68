"""Run a model of regard, to compare it with a model of another program."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from regard import __version__
from regard.data.rows import one_per_row
from regard.exchange.certificate import Sequences
from regard.recipe import SearchRecipe
from regard.run.model_directory import Model
from regard.search import search
from regard.text.tokenizer import EOS


class OurSide:
    """A model of regard, as one of the two models that a certificate compares; see `Side`.

    `rules` are the settings of the search, except beam and alpha: these two are arguments of the
    method `beam`. If `rules` is None, the settings in the model's recipe are used.
    """

    def __init__(self, model: Model, rules: SearchRecipe | None = None):
        self._model, self._rules = model, rules or model.recipe.search

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of regard and of PyTorch."""
        return {"regard": __version__, "torch": torch.__version__}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source ids of each text, with </s> at the end."""
        return [[*ids, EOS] for ids in self._model.tokenizer.encode(texts)]

    @torch.inference_mode()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """[target, vocabulary] The logits of the next token, after each token of `target`.

        `target` begins with <s>.
        """
        logits = self._model.network(one_per_row([source]), one_per_row([target]))
        return logits[0].float().numpy()

    def beam(self, sources: Sequences, most: int, beam: int, alpha: float) -> list[list[int]]:
        """The best output of regard's search for each source; see `Side.beam`."""
        network, limits = self._model.network, torch.full((len(sources),), most)
        rules = self._rules.but(beam=beam, alpha=alpha)
        found = search(network, one_per_row(sources), limits, rules, by=network.by)
        return [list(best.tokens) for best, *_ in found]
