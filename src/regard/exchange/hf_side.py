"""Run a MarianMTModel with its tokenizer in `transformers`, to compare it with a regard model."""

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
from regard.exchange.hf_vocabulary import MarianVocabulary
from regard.exchange.reading import read_object
from regard.text.foreign.base import ForeignTokenizer
from regard.text.foreign.order import IdOrder
from regard.text.tokenizer import BOS


class MarianSide:
    """A MarianMTModel with its tokenizer, as one side of a comparison (`certificate.Side`).

    The methods of this class accept and return regard's ids.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        order: IdOrder,
        source_order: IdOrder,
        *,
        start: int,
        end: int,
        left_out: Sequence[int],
        **options: Any,
    ):
        """`order` (for the target) and `source_order` map MarianMTModel's ids to regard's ids.

        model      an object of the class MarianMTModel
        tokenizer  the model's tokenizer, an object of `transformers`
        start      MarianMTModel's id with which the decoder begins
        end        MarianMTModel's id of </s>
        left_out   MarianMTModel's ids that the softmax leaves out
        options    further arguments for the model's method `generate`
        """
        self._model, self._tokenizer = model, tokenizer
        self._order, self._source_order = order, source_order
        self._start, self._end, self._left_out = start, end, list(left_out)
        self._options = options

    @property
    def versions(self) -> Mapping[str, str]:
        """The versions of transformers and of PyTorch."""
        import transformers

        return {"transformers": transformers.__version__, "torch": torch.__version__}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The source ids of each text, by MarianMTModel's tokenizer, mapped to regard's ids."""
        found = self._tokenizer(list(texts)).input_ids
        return [[int(self._source_order.ids[i]) for i in row] for row in found]

    @torch.inference_mode()
    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        """[target, vocabulary] The logits of the next token, after each token of `target`.

        `target` begins with <s>. The logit of an entry of the vocabulary is -inf if MarianMTModel
        lacks the entry, or leaves the entry out of the softmax.
        """
        theirs = self._order.foreign_ids
        begun = [self._start if i == BOS else theirs[i] for i in target]
        logits = self._model(
            input_ids=self._source(source), decoder_input_ids=torch.tensor([begun])
        ).logits[0]
        logits[:, self._left_out] = -torch.inf
        ids = torch.tensor(theirs)
        return logits[:, ids.clamp(min=0)].masked_fill(ids < 0, -torch.inf).numpy()

    @torch.inference_mode()
    def beam(self, sources: Sequences, most: int, beam: int, alpha: float) -> list[list[int]]:
        """The output of `generate` for each source, one source at a time; see `Side.beam`."""
        found = []
        for source in sources:
            tokens = self._model.generate(
                input_ids=self._source(source), num_beams=beam, length_penalty=alpha,
                max_new_tokens=most, max_length=None, **self._options,
            )[0].tolist()[1:]  # fmt: skip
            length = tokens.index(self._end) if self._end in tokens else len(tokens)
            found.append([int(self._order.ids[i]) for i in tokens[:length]])
        return found

    def _source(self, source: Sequence[int]) -> Tensor:
        return torch.tensor([[self._source_order.foreign_ids[i] for i in source]])


def foreign_side(
    directory: Path,
    tensors: Mapping[str, Tensor],
    generation: Generation,
    tokenizer: ForeignTokenizer[Any],
) -> MarianSide:
    """Open the foreign model in `directory`, as one side of a comparison (`certificate.Side`).

    `tensors` are the weights of the model, by name; `transformers` gets these weights, and reads
    none from the directory. `generation` has the settings of the search, and `tokenizer` the order
    of the ids. Raises NotRunError if `transformers` is not installed, or cannot open the directory.
    """
    try:
        import transformers
    except ImportError:
        raise NotRunError("transformers is not installed") from None
    try:
        config = transformers.MarianConfig.from_dict(read_object(directory / "config.json"))
        model: Any = transformers.MarianMTModel(config).eval().float()
        model.load_state_dict(dict(tensors), strict=False)
        model.tie_weights()
        cutter = transformers.MarianTokenizer.from_pretrained(str(directory), local_files_only=True)
    except Exception as error:  # `transformers` may raise any error for files of other versions
        raise NotRunError(f"transformers cannot open it: {str(error)[:200]}") from None
    forbidden = sorted(generation.forbidden)
    return MarianSide(
        model, cutter, tokenizer.order, tokenizer.order_of("source"), start=generation.start,
        end=generation.end, left_out=forbidden if generation.excluded else [],
        do_sample=False, early_stopping=False, forced_eos_token_id=None,
        bad_words_ids=[[i] for i in forbidden] or None, renormalize_logits=generation.excluded,
        eos_token_id=generation.end, pad_token_id=generation.pad,
        decoder_start_token_id=generation.start,
    )  # fmt: skip


def exported_side(directory: Path, vocabulary: MarianVocabulary) -> MarianSide:
    """Open a model that `regard export hf` wrote, as one side of a comparison (`certificate.Side`).

    `transformers` opens `directory` by from_pretrained, takes nothing from the network, and runs no
    code of the directory. Raises ModuleNotFoundError if `transformers` is not installed, and the
    errors of `transformers` if the directory cannot be opened.
    """
    import transformers

    transformers.utils.logging.disable_progress_bar()
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    model: Any = transformers.MarianMTModel.from_pretrained(directory, **safely).eval().float()
    cutter = transformers.AutoTokenizer.from_pretrained(directory, **safely)
    return MarianSide(
        model, cutter, vocabulary.order, vocabulary.source_order,
        start=vocabulary.ids["decoder_start_token_id"], end=vocabulary.ids["eos_token_id"],
        left_out=vocabulary.never if vocabulary.excluded else [],
    )  # fmt: skip
