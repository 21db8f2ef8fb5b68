"""A directory of `regard export hf`, opened by `transformers`, as one side of a certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.exchange.certificate import Sequences
from regard.exchange.hf_vocabulary import MarianVocabulary
from regard.text.tokenizer import BOS


class PretrainedSide:
    """MarianMTModel and its tokenizer, both opened by from_pretrained without options.

    Raises ModuleNotFoundError if `transformers` is not installed.
    """

    def __init__(self, directory: Path, vocabulary: MarianVocabulary):
        import transformers

        transformers.utils.logging.disable_progress_bar()
        self._version: str = transformers.__version__
        self._vocabulary = vocabulary
        self._model: Any = transformers.MarianMTModel.from_pretrained(directory).eval().float()
        self._tokenizer: Any = transformers.AutoTokenizer.from_pretrained(directory)
        self._their_ids = np.zeros(int(vocabulary.theirs.max()) + 1, np.int64)
        self._their_ids[vocabulary.theirs] = np.arange(vocabulary.size)
        self._their_sources = np.zeros(int(vocabulary.theirs_of_source.max()) + 1, np.int64)
        self._their_sources[vocabulary.theirs_of_source] = np.arange(vocabulary.source_size)

    @property
    def versions(self) -> Mapping[str, str]:
        """The version of transformers."""
        return {"transformers": self._version}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts by the tokenizer of `transformers`; return the ids as our source ids."""
        found = self._tokenizer(list(texts)).input_ids
        return [[int(self._vocabulary.theirs_of_source[i]) for i in row] for row in found]

    @torch.inference_mode()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """[target, vocabulary] The logits that MarianMTModel gives our entries.

        A logit is -inf if MarianMTModel lacks the entry, or leaves it out of the softmax.
        """
        start = self._vocabulary.ids["decoder_start_token_id"]
        begun = [start if i == BOS else int(self._their_ids[i]) for i in target]
        logits = (
            self._model(input_ids=self._source(source), decoder_input_ids=torch.tensor([begun]))
            .logits[0]
            .numpy()
        )
        found = np.full((len(logits), len(self._their_ids)), -np.inf, np.float32)
        found[:, self._vocabulary.theirs] = logits
        if self._vocabulary.excluded:
            found[:, self._vocabulary.theirs[self._vocabulary.never]] = -np.inf
        return found

    @torch.inference_mode()
    def beam(self, sources: Sequences, most: int, beam: int, alpha: float) -> list[list[int]]:
        """The output of `generate` for each source, one source at a time."""
        found = []
        end = self._vocabulary.ids["eos_token_id"]
        for source in sources:
            tokens = self._model.generate(
                input_ids=self._source(source), num_beams=beam, length_penalty=alpha,
                max_new_tokens=most, max_length=None,
            )[0].tolist()[1:]  # fmt: skip
            length = tokens.index(end) if end in tokens else len(tokens)
            found.append([int(self._vocabulary.theirs[i]) for i in tokens[:length]])
        return found

    def _source(self, source: Sequence[int]) -> torch.Tensor:
        return torch.tensor([[int(self._their_sources[i]) for i in source]])
