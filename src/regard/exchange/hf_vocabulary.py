"""The vocabulary ids of a model that is exported as MarianMTModel.

The ids are regard's ids or, if the model was imported, the ids that it had before the import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regard.errors import ModelError
from regard.exchange.certificate import IMPOSSIBLE
from regard.exchange.parts import copied_weights, matrices_of
from regard.run.model_directory import Model
from regard.text.foreign.base import ForeignTokenizer
from regard.text.foreign.files import read_vocabulary
from regard.text.foreign.order import IdOrder
from regard.text.foreign.sentence_pieces import SentencePieceTokenizer
from regard.text.tokenizer import BOS, EOS, PAD

_Matrix = NDArray[np.float32]


@dataclass(frozen=True)
class MarianVocabulary:
    """The vocabulary of an exported model.

    `order` (for the target) and `source_order` map exported ids to regard's ids. In an `IdOrder`,
    the exported ids are named foreign ids.
    """

    order: IdOrder
    source_order: IdOrder
    ids: dict[str, int]
    """The exported ids of special tokens, by keys of a configuration, such as "eos_token_id"."""
    never: list[int]
    """Exported ids that the search never chooses."""
    excluded: bool = False
    """Whether the softmax leaves out the ids of `never`."""
    tokenizer_class: str = "PreTrainedTokenizerFast"

    @classmethod
    def of(cls, model: Model) -> Self:
        """The vocabulary for exporting a model; an imported model gets its former ids back.

        The exported decoder must begin with an entry that has the embedding of regard's <s>. Raises
        ModelError if no exported entry can have this embedding.
        """
        tokenizer = model.tokenizer
        if not isinstance(tokenizer, ForeignTokenizer):
            return cls.own(tokenizer.size)
        order, weights = tokenizer.order, copied_weights(model)
        pad, start, end = order.specials
        bias = weights.get("output_bias", np.zeros(tokenizer.size, np.float32))
        barred = np.flatnonzero(bias[order.ids] < IMPOSSIBLE).tolist()
        never = barred or sorted({i for i in (pad, start) if i >= 0})
        # If no foreign entry became regard's <s>, the import gave <s> a copy of the embedding with
        # which the foreign decoder begins. The entry with this embedding is looked up here. If <s>
        # was trained further, there is no such entry. If the softmax then leaves the padding out,
        # the padding's embedding has no use: it becomes the embedding of <s>, and the decoder
        # begins with the padding. If the softmax includes the padding, an error is raised.
        padding = _named_padding(tokenizer, pad)
        if start < 0:
            start = _same_row(weights[matrices_of(model.recipe.model).target], order.ids)
        if start < 0 and padding in barred:
            start = padding
        if start < 0:
            raise ModelError(
                "MarianMTModel begins with an entry of its vocabulary, and none has the embedding "
                "of <s>, which was trained further: export ctranslate2 or onnx"
            )
        ids = {
            "eos_token_id": end,
            "pad_token_id": start if padding < 0 else padding,
            "decoder_start_token_id": start,
        }
        sources = tokenizer.order_of("source")
        return cls(order, sources, ids, never, bool(barred), "MarianTokenizer")

    @classmethod
    def own(cls, size: int) -> Self:
        """The vocabulary for a tokenizer of regard with `size` entries: all ids stay the same."""
        ids = {"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}
        every = IdOrder(size=size, specials=(PAD, BOS, EOS))
        return cls(every, every, ids | {"decoder_start_token_id": BOS}, [PAD, BOS])

    def rows(self, matrix: _Matrix) -> _Matrix:
        """[size, d_model] The rows of a matrix of the target, in the order of the exported ids."""
        return np.ascontiguousarray(matrix[self.order.ids])

    def target_rows(self, matrix: _Matrix) -> _Matrix:
        """The rows of the target's embedding, in the order of the exported ids.

        The id with which the decoder begins gets the row of regard's <s>.
        """
        found = self.rows(matrix)
        found[self.ids["decoder_start_token_id"]] = matrix[BOS]
        return found

    def source_rows(self, matrix: _Matrix) -> _Matrix:
        """The rows of a matrix of source embeddings, in the order of the exported ids."""
        return np.ascontiguousarray(matrix[self.source_order.ids])

    def bias(self, bias: _Matrix | None) -> _Matrix:
        """[size] `bias` in the order of the exported ids; zeros if `bias` is None.

        regard never outputs an entry whose bias is below IMPOSSIBLE. Such an entry is exported with
        a bias of 0.
        """
        if bias is None:
            return np.zeros(self.order.size, np.float32)
        found: _Matrix = np.where(bias < IMPOSSIBLE, np.float32(0), bias)[self.order.ids]
        return found


def _same_row(matrix: _Matrix, theirs: NDArray[np.int64]) -> int:
    """The largest exported id with the same embedding as regard's <s>; -1 if there is none.

    `matrix` has the target's embeddings in the order of regard's ids. `theirs` gives, for each
    exported id, the id of the same entry in regard.
    """
    equal = np.flatnonzero((matrix[theirs] == matrix[BOS]).all(1))
    return int(equal[-1]) if len(equal) else -1


def _named_padding(tokenizer: ForeignTokenizer[Any], default: int) -> int:
    """The exported id of the piece that MarianTokenizer adds as padding after a sentence's </s>.

    Returns `default` if the tokenizer has no such piece.
    """
    if not isinstance(tokenizer, SentencePieceTokenizer) or len(tokenizer.settings.skipped) < 3:
        return default
    files = tokenizer.files
    file = files.get("target_vocab.json") or files.get("vocab.json")
    known = {} if file is None else read_vocabulary(file)
    return known.get(tokenizer.settings.skipped[2], default)
