"""Make a SentencePiece model that divides text like our byte-pair encoding, as far as possible.

SentencePiece merges characters; our byte-pair encoding merges bytes. An entry of our vocabulary
that consists of complete characters becomes a piece of the SentencePiece model, and the order of
the merges gives the score of the piece. A character without a piece is encoded as byte pieces, such
as <0xE2>.

Two properties of our encoding cannot be expressed in SentencePiece. First, an entry of our
vocabulary may end within a character. Second, each of our merges joins one fixed pair of entries,
while SentencePiece makes a piece from any pair of pieces that together spell the piece. For these
two reasons, SentencePiece may divide a text differently. This is rare, but each SentencePiece model
is tested on text before use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from regard.errors import MissingExtra, ModelError
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import BYTE_ALPHABET, CONTINUED, EOS, SPECIAL, Tokenizer

try:
    from sentencepiece import SentencePieceProcessor
    from sentencepiece import sentencepiece_model_pb2 as protocol
except ImportError:
    raise MissingExtra("a SentencePiece model", "exchange") from None

UNKNOWN = "<unk>"
"""The piece for unknown text. SentencePiece demands this piece, but never uses it for a text,
because every byte has a piece."""
_HIDDEN = [byte for byte in range(256) if chr(byte) not in BYTE_ALPHABET]
_BYTES = {c: ord(c) if ord(c) < 256 else _HIDDEN[ord(c) - 256] for c in BYTE_ALPHABET}
"""For each character of BYTE_ALPHABET, the byte that the character stands for."""


class Pieces(NamedTuple):
    """A SentencePiece model, as the content of its file, and a name for each id of regard.

    If the vocabulary entry of an id is a piece of the SentencePiece model, the name is the piece.
    Otherwise, the name is a text that SentencePiece never outputs, such as <part 300>.
    """

    model: bytes
    names: list[str]


def sentence_pieces(tokenizer: Tokenizer) -> Pieces:
    """Make the SentencePiece model for a tokenizer that regard learned.

    Raises ModelError if the tokenizer has word pieces in place of byte-pair encoding.
    """
    merges = tokenizer.merges
    if CONTINUED + BYTE_ALPHABET[0] in tokenizer.entries:
        raise ModelError(
            "tokenizer.kind = wordpiece: SentencePiece has no such rule; models with byte-pair "
            "encoding can be exported to argos"
        )
    proto = cast(Any, protocol).ModelProto()
    kinds = proto.SentencePiece
    _add(proto, UNKNOWN, 0, kinds.UNKNOWN)
    for name in SPECIAL:
        _add(proto, name, 0, kinds.CONTROL)
    for byte in range(256):
        _add(proto, _byte_name(byte), 0, kinds.BYTE)
    order = {int(joined): place for place, joined in enumerate(merges[:, 2])}
    names = list(SPECIAL)
    for i in range(EOS + 1, tokenizer.size):
        content = bytes(_BYTES[character] for character in tokenizer.entries[i])
        names.append(_name(content, i))
        if _is_text(content):
            _add(proto, names[-1], -order.get(i, len(merges)), kinds.NORMAL)
    _set_rules(proto)
    return Pieces(proto.SerializeToString(), names)


def refuse_other_cuts(pieces: Pieces, tokenizer: AnyTokenizer, lines: Sequence[str]) -> None:
    """Raise ModelError if Argos Translate divides one of `lines` differently from `tokenizer`.

    Also raises ModelError if Argos Translate does not join the pieces to the same line. Argos
    Translate joins pieces as SentencePiece does, and then replaces every "_" by a space.
    """
    processor: Any = SentencePieceProcessor(model_proto=pieces.model)
    found = processor.encode(list(lines), out_type=str)
    for number, (line, ids, theirs) in enumerate(
        zip(lines, tokenizer.encode(lines), found, strict=True), start=1
    ):
        ours = [pieces.names[i] for i in ids]
        if ours != theirs:
            shown = f"{' '.join(ours)[:60]} and not {' '.join(theirs)[:60]}"
            raise ModelError(
                f"line {number} of the text: SentencePiece would cut it otherwise: {shown}: export "
                "to ctranslate2 instead, or leave such lines out of --text"
            )
        if (joined := processor.decode_pieces(theirs).replace("_", " ")) != line:
            raise ModelError(
                f"line {number} of the text: Argos Translate would join its pieces otherwise, as "
                f"{joined[:60]!r}: leave such lines out of --text"
            )


def _add(proto: Any, name: str, score: float, kind: int) -> None:
    piece = proto.pieces.add()
    piece.piece, piece.score, piece.type = name, float(score), kind


def _name(content: bytes, number: int) -> str:
    """The name of an entry: its text, its single byte, or a name that SentencePiece never uses."""
    if _is_text(content):
        return content.decode().replace(" ", "▁")
    return _byte_name(content[0]) if len(content) == 1 else f"<part {number}>"


def _is_text(content: bytes) -> bool:
    """Whether these bytes are complete characters that can be the name of a piece."""
    if len(content) == 1 and not 0x20 <= content[0] < 0x7F:
        return False
    try:
        return "▁" not in content.decode()
    except UnicodeDecodeError:
        return False


def _byte_name(byte: int) -> str:
    return f"<0x{byte:02X}>"


def _set_rules(proto: Any) -> None:
    """Set the model type, ids and special pieces, and the rules for spaces.

    SentencePiece shall keep all spaces of a text, and add a space before the text.
    """
    trainer = proto.trainer_spec
    trainer.model_type, trainer.byte_fallback = trainer.BPE, True
    trainer.vocab_size = len(proto.pieces)
    trainer.unk_id, trainer.pad_id, trainer.bos_id, trainer.eos_id = 0, 1, 2, 3
    trainer.unk_piece, trainer.pad_piece, trainer.bos_piece, trainer.eos_piece = UNKNOWN, *SPECIAL
    rules = proto.normalizer_spec
    rules.name, rules.add_dummy_prefix = "identity", True
    rules.remove_extra_whitespaces, rules.escape_whitespaces = False, True
