"""A SentencePiece model that cuts text as our byte-pair encoding does, as far as one can.

SentencePiece merges characters where our merges join bytes. A piece of whole characters becomes a
piece of its model, with a score by the order of the merges; a byte of a character that has no piece
becomes a byte piece, <0xE2>. Two things have no counterpart there: a piece that ends within a
character, and a piece that only one of the pairs of its halves makes. Both are rare; so each model
is proved on text before it is used.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from tokenizers import decoders

from regard.errors import DataError, MissingExtra, ModelError
from regard.text.tokenizer import EOS, SPECIAL, Tokenizer

try:
    from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2
except ImportError:
    raise MissingExtra("a SentencePiece model", "exchange") from None

BLANK = "▁"
"""SentencePiece's space."""
UNKNOWN = "<unk>"


class Pieces(NamedTuple):
    """A SentencePiece model, and its name for each of our entries."""

    model: bytes
    names: list[str]


def sentence_pieces(tokenizer: Tokenizer) -> Pieces:
    """The model for a tokenizer; raises ModelError for word pieces, which it cannot cut."""
    merges = tokenizer.merges
    if not len(merges):
        raise ModelError(
            "tokenizer.kind = wordpiece: SentencePiece has no such rule; only models with byte-pair "
            "encoding can be exported to argos"
        )
    rank = {int(joined): place for place, joined in enumerate(merges[:, 2])}
    names = list(SPECIAL)
    proto = sentencepiece_model_pb2.ModelProto()
    kinds = proto.SentencePiece
    _add(proto, UNKNOWN, 0.0, kinds.UNKNOWN)
    for name in SPECIAL:
        _add(proto, name, 0.0, kinds.CONTROL)
    for byte in range(256):
        _add(proto, _byte_name(byte), 0.0, kinds.BYTE)
    for i in range(EOS + 1, tokenizer.size):
        content = _bytes_of(tokenizer.entries[i])
        name = _name(content, i)
        names.append(name)
        if not name.startswith("<"):
            _add(proto, name, -float(rank.get(i, len(merges))), kinds.NORMAL)
        elif name == "<":
            _add(proto, name, -float(len(merges)), kinds.NORMAL)
    _set_rules(proto)
    return Pieces(proto.SerializeToString(), names)
