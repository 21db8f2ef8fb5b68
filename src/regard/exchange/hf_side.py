"""MarianMTModel and MarianTokenizer of `transformers`, as one side of a certificate."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.exchange.certificate import Sequences
from regard.exchange.foreign import NotRunError
from regard.exchange.hf_generation import Generation
from regard.exchange.reading import read_object
from regard.text.foreign.base import ForeignTokenizer
from regard.text.foreign.order import IdOrder
from regard.text.tokenizer import BOS


class HuggingFaceSide:
    """A directory of MarianMTModel, run by `transformers`.

    The weights are `tensors`, which were read before: `transformers` reads no weights from the
    directory. Raises NotRunError if `transformers` is not installed, or cannot open the directory.
    """

    def __init__(
        self,
        directory: Path,
        tensors: Mapping[str, Tensor],
        generation: Generation,
        tokenizer: ForeignTokenizer[Any],
    ):
        try:
            import transformers
        except ImportError:
            raise NotRunError("transformers is not installed") from None
        self._generation, self._order = generation, tokenizer.order
        self._source_order: IdOrder = tokenizer.order_of("source")
        self._version = transformers.__version__
        try:
            config = transformers.MarianConfig.from_dict(read_object(directory / "config.json"))
            self._model: Any = transformers.MarianMTModel(config).eval().float()
            self._model.load_state_dict(dict(tensors), strict=False)
            self._model.tie_weights()
            self._tokenizer: Any = transformers.MarianTokenizer.from_pretrained(
                str(directory), local_files_only=True
            )
        except Exception as error:  # files of another version may raise any exception
            raise NotRunError(f"transformers cannot open it: {str(error)[:200]}") from None

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of transformers and of PyTorch."""
        return {"transformers": self._version, "torch": torch.__version__}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode texts by MarianTokenizer; return the ids as our source ids."""
        found = self._tokenizer(list(texts)).input_ids
        return [[int(self._source_order.ids[i]) for i in row] for row in found]

    @torch.inference_mode()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """[target, vocabulary] The logits that MarianMTModel gives our entries.

        A logit is -inf if MarianMTModel lacks the entry, or leaves it out of the softmax.
        """
        ids = self._order.foreign_ids
        begun = [self._generation.start if i == BOS else ids[i] for i in target]
        logits = self._model(
            input_ids=torch.tensor([self._foreign(source)]),
            decoder_input_ids=torch.tensor([begun]),
        ).logits[0]
        if self._generation.excluded:
            logits[:, list(self._generation.forbidden)] = -torch.inf
        never = torch.tensor(ids) < 0
        ours = logits[:, torch.tensor(ids).clamp(min=0)].masked_fill(never, -torch.inf)
        return ours.numpy()

    @torch.inference_mode()
    def beam(self, sources: Sequences, most: int, beam: int, alpha: float) -> list[list[int]]:
        """The output of `generate` for each source, one source at a time."""
        found = []
        for source in sources:
            forbidden = [[i] for i in sorted(self._generation.forbidden)]
            tokens = self._model.generate(
                input_ids=torch.tensor([self._foreign(source)]),
                num_beams=beam, length_penalty=alpha, max_new_tokens=most, max_length=None,
                do_sample=False, early_stopping=False, forced_eos_token_id=None,
                bad_words_ids=forbidden or None, renormalize_logits=self._generation.excluded,
                eos_token_id=self._generation.end, pad_token_id=self._generation.pad,
                decoder_start_token_id=self._generation.start,
            )[0].tolist()[1:]  # fmt: skip
            ended = tokens.index(self._generation.end) if self._generation.end in tokens else None
            found.append([int(self._order.ids[i]) for i in tokens[:ended]])
        return found

    def _foreign(self, source: Sequence[int]) -> list[int]:
        return [self._source_order.foreign_ids[i] for i in source]
