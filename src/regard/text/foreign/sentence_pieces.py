"""SentencePiece models, unigram or BPE, as marian-nmt, MarianTokenizer and other tools use them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from regard.errors import MissingExtra, ModelError
from regard.sections import Section
from regard.text.foreign.base import ForeignTokenizer, LeftOutIfFalse
from regard.text.foreign.bounds import refuse_growth
from regard.text.foreign.files import (
    Original,
    order_by_names,
    read_json,
    read_original,
    read_vocabulary,
    vocabulary_file,
)
from regard.text.foreign.order import Specials
from regard.text.foreign.tables import PieceTable
from regard.text.protocol import SideName
from regard.text.tokenizer import MOST_ENTRIES

if TYPE_CHECKING:
    from sentencepiece import SentencePieceProcessor

BLANK = "▁"
"""The character by which SentencePiece writes a space."""
_TIDIED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class SentencePieceSettings(Section):
    """Settings of a SentencePiece tokenizer."""

    unknown: str = "<unk>"
    """The piece that stands for every piece that the vocabulary file lacks. If there is no such
    file, the unknown piece of the source's SentencePiece model is used instead."""
    skipped: tuple[str, ...] = ("<pad>", "<s>", "</s>", "<unk>")
    """Pieces that decoding leaves out. The import of a MarianTokenizer puts </s>, the unknown piece
    and <pad> first, in this order, and the export to `transformers` relies on this order."""
    language_codes: bool = False
    """Whether `>>de<<` at the beginning of a line is one piece, as in MarianTokenizer."""
    joined_by: SideName = "target"
    """The side whose SentencePiece model joins pieces of the target to text. If the vocabulary is
    shared, MarianTokenizer (in transformers 5) uses the model of the source for this."""
    tidied: bool = False
    """Whether decoding removes the space before a punctuation mark or an English contraction, so
    that " ." becomes "." and " n't" becomes "n't". `_TIDIED` lists the strings that lose their
    spaces. In `transformers`, this is `clean_up_tokenization_spaces`."""
    restricted: LeftOutIfFalse = False
    """Whether text is cut only into pieces of the vocabulary and single characters, as in JoeyNMT.
    If False, text is also cut into other pieces; each of them becomes the unknown piece."""


class SentencePieceTokenizer(ForeignTokenizer[SentencePieceSettings]):
    """Divides text into pieces by one SentencePiece model, or by one model for each side.

    The ids of pieces come from a vocabulary file or, without such a file, from the model.
    """

    kind = "sentencepiece"
    needed = ("source.spm",)
    allowed = ("source.spm", "target.spm", "vocab.json", "target_vocab.json")
    settings_type = SentencePieceSettings

    @classmethod
    def read(
        cls,
        source: str | Path,
        target: str | Path | None = None,
        vocabulary: str | Path | Mapping[str, int] | None = None,
        target_vocabulary: str | Path | Mapping[str, int] | None = None,
        *,
        specials: Specials | None = None,
        source_specials: Specials | None = None,
        size: int | None = None,
        source_size: int | None = None,
        settings: SentencePieceSettings | None = None,
    ) -> Self:
        """Read SentencePiece models and the vocabularies that give their pieces ids.

        Without `target`, one model cuts both sides. Without `vocabulary`, the source's model gives
        the ids; without `target_vocabulary`, both sides have one vocabulary. `specials` and `size`
        describe the target; `source_specials` and `source_size` describe the source, if there are
        two vocabularies. By default, special symbols are looked up by the names <pad>, <s> and
        </s>, and the size follows from the largest id. Raises ModelError if a file cannot be used,
        MissingExtra if sentencepiece or, for `restricted`, protobuf is not installed.
        """
        files = {"source.spm": read_original(source)}
        if target is not None:
            files["target.spm"] = read_original(target)
        if vocabulary is not None:
            files["vocab.json"] = vocabulary_file(vocabulary, "vocab.json")
        if target_vocabulary is not None:
            files["target_vocab.json"] = vocabulary_file(target_vocabulary, "target_vocab.json")
        order = order_by_names(_vocabulary(files, "target"), specials, size)
        source_order = None
        if target_vocabulary is not None:
            source_order = order_by_names(
                _vocabulary(files, "source"), source_specials, source_size
            )
        return cls(order, source_order, settings or SentencePieceSettings(), files)

    @classmethod
    def read_marian(
        cls,
        directory: str | Path,
        *,
        specials: Specials | None = None,
        source_specials: Specials | None = None,
        size: int | None = None,
        source_size: int | None = None,
    ) -> Self:
        """Read a directory of MarianTokenizer: source.spm, target.spm and vocab.json.

        tokenizer_config.json is read if it exists. If tokenizer_config.json asks for two
        vocabularies, target_vocab.json is read, too. By default, regard's <s> is MarianTokenizer's
        pad token, because Marian's decoder begins with the pad token. Raises the errors of `read`.
        """
        directory = Path(directory)
        path = directory / "tokenizer_config.json"
        config = read_json(read_original(path)) if path.exists() or path.is_symlink() else {}
        if not isinstance(config, dict):
            raise ModelError(f"{path}: not a JSON object: take the file of the model's tokenizer")
        if config.get("sp_model_kwargs"):
            raise ModelError(
                f"{path}: sp_model_kwargs asks for another division of a text each time: remove it"
            )
        named = _named_tokens(config, path)
        apart = config.get("separate_vocabs", False) is True
        vocabulary, target_vocabulary = directory / "vocab.json", directory / "target_vocab.json"
        settings = SentencePieceSettings(
            unknown=named["unk_token"],
            skipped=_skipped([*named.values()], _more_specials(config, path)),
            language_codes=True,
            joined_by="target" if apart else "source",
            tidied=config.get("clean_up_tokenization_spaces", False) is True,
        )

        def begun(vocabulary: Path) -> Specials:
            known = read_vocabulary(read_original(vocabulary))
            return -1, known.get(named["pad_token"], -1), known.get(named["eos_token"], -1)

        return cls.read(
            directory / "source.spm",
            directory / "target.spm",
            vocabulary,
            target_vocabulary if apart else None,
            specials=specials or begun(target_vocabulary if apart else vocabulary),
            source_specials=source_specials or (begun(vocabulary) if apart else None),
            size=size,
            source_size=source_size,
            settings=settings,
        )

    def prefix(self, line: str) -> str:
        """The language code at the beginning of a line, such as `>>de<<`; "" if there is none.

        Any text between `>>` and the first `<<` counts as a language code. Without
        `language_codes` in the settings, no text does.
        """
        end = line.find("<<") if self.settings.language_codes and line.startswith(">>") else -1
        return line[: end + 2] if end >= 0 else ""

    @property
    def cutter(self) -> bytes:
        """The SentencePiece model that cuts the source into pieces, as the content of a .spm file.

        If `restricted` is set, the model is a changed copy of source.spm.
        """
        if self.settings.restricted:
            return bytes(self._models["source"].serialized_model_proto())
        return self.files["source.spm"].content

    def _open(self) -> None:
        self._models, self._tables = {}, {}
        for side in ("source", "target"):
            known = _vocabulary(self.files, side)
            self._models[side] = self._model_of(side, known)
            where = _vocabulary_name(self.files, side)
            unknown = self.settings.unknown
            if where.endswith(".spm"):
                model = self._models["source"]
                unknown = model.id_to_piece(model.unk_id())
            self._tables[side] = PieceTable(
                known, self.order_of(side), unknown, self.files[where].path
            )
        self._skipped = {*self.settings.skipped}

    def _model_of(self, side: str, vocabulary: Container[str]) -> SentencePieceProcessor:
        own = self.files.get(f"{side}.spm")
        if self.settings.restricted:
            return _model(own or self.files["source.spm"], vocabulary)
        return _model(own) if own else self._models["source"]

    def unknown(self, side: SideName) -> int:
        """regard's id of the piece that stands for unknown pieces."""
        return self._tables[side].unknown

    def _encoded(self, lines: Sequence[str], side: SideName) -> Iterator[list[int]]:
        codes = [self.prefix(line) for line in lines]
        rest = [line.removeprefix(code) for line, code in zip(lines, codes, strict=True)]
        table = self._tables[side]
        for code, pieces in zip(codes, self._models[side].encode(rest, out_type=str), strict=True):
            yield table.ids([code, *pieces] if code else pieces)

    def _joined(self, foreign: list[int], side: SideName) -> str:
        model = self._models[self.settings.joined_by if side == "target" else side]
        pieces = [p for p in self._pieces(foreign, side) if p not in self._skipped]
        text = str(model.decode_pieces(pieces)).replace(BLANK, " ").strip()
        if self.settings.tidied:
            for before in _TIDIED:
                text = text.replace(before, before.strip())
        return text

    def _named(self, foreign: list[int], side: SideName) -> list[str]:
        return [piece.replace(BLANK, " ") for piece in self._pieces(foreign, side)]

    def _pieces(self, foreign: list[int], side: SideName) -> list[str]:
        """The pieces of foreign ids.

        As in MarianTokenizer, an id that the vocabulary lacks is looked up in the SentencePiece
        model. The piece is "" if the model lacks the id, too.
        """
        known = self._tables[side].pieces
        model = self._models[self.settings.joined_by if side == "target" else side]
        return [
            known[i] if i in known else model.id_to_piece(i) if i < len(model) else ""
            for i in foreign
        ]


def _model(file: Original, allowed: Container[str] | None = None) -> SentencePieceProcessor:
    """The model in a file; with `allowed`, only these pieces and single characters are used."""
    try:
        from sentencepiece import SentencePieceProcessor
    except ImportError:
        raise MissingExtra("a SentencePiece tokenizer", "exchange") from None
    refuse_growth(file.content, file.path)
    model = SentencePieceProcessor()
    try:
        model.LoadFromSerializedProto(file.content)
        if allowed is not None:
            model.LoadFromSerializedProto(_restricted(file.content, allowed))
    except (RuntimeError, ValueError):
        raise ModelError(f"{file.path}: damaged, or not a SentencePiece model") from None
    if len(model) > MOST_ENTRIES:
        raise ModelError(f"{file.path}: it has more than {MOST_ENTRIES:,} pieces")
    return model


def _restricted(content: bytes, allowed: Container[str]) -> bytes:
    """A copy of a model that cuts text only into single characters and pieces in `allowed`.

    Other normal pieces are marked as unused. Older versions of SentencePiece have `SetVocabulary`
    for this purpose, but the newest version does not.
    """
    try:
        from sentencepiece import sentencepiece_model_pb2
    except ImportError:  # protobuf is missing
        raise MissingExtra("a restricted SentencePiece tokenizer", "exchange") from None
    model = cast(Any, sentencepiece_model_pb2).ModelProto.FromString(content)
    kinds = model.SentencePiece
    for piece in model.pieces:
        kind, text = piece.type, piece.piece
        if kind == kinds.NORMAL and len(text) > 1 and text not in allowed:
            piece.type = kinds.UNUSED
    return bytes(model.SerializeToString())


def _vocabulary_name(files: Mapping[str, Original], side: str) -> str:
    """The name of the file that has the ids of the pieces of one side (source or target)."""
    asked = ("target_vocab.json", "vocab.json") if side == "target" else ("vocab.json",)
    return next((name for name in asked if name in files), "source.spm")


def _vocabulary(files: Mapping[str, Original], side: str) -> dict[str, int]:
    name = _vocabulary_name(files, side)
    return read_vocabulary(files[name]) if name.endswith(".json") else pieces_in(files[name])


def pieces_in(file: Original) -> dict[str, int]:
    """A map from a SentencePiece model's pieces to ids; raises ModelError or MissingExtra."""
    model = _model(file)
    return {model.id_to_piece(i): i for i in range(len(model))}


def _named_tokens(config: dict[str, Any], path: Path) -> dict[str, str]:
    """MarianTokenizer's end, unknown and pad tokens, by their keys in the file `path`.

    A key that `config` lacks gets the usual token. Raises ModelError if a token is not text.
    """
    named = {}
    for key, usual in (("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")):
        token = config.get(key, usual)
        token = token.get("content") if isinstance(token, dict) else token
        if not isinstance(token, str):
            raise ModelError(f"{path}: {key} is {token!r:.80}: it must be a piece of vocab.json")
        named[key] = token
    return named


def _skipped(named: list[str], more: Iterable[str]) -> tuple[str, ...]:
    """The tokens in `named`, then the tokens in `more` that `named` lacks, each of them once."""
    return (*named, *(token for token in dict.fromkeys(more) if token not in named))


def _more_specials(config: dict[str, Any], path: Path) -> list[str]:
    """The tokens in additional_special_tokens and added_tokens_decoder of tokenizer_config.json.

    Tokens of `_named_tokens` may be among them. Raises ModelError if a value has the wrong type, or
    if an added token is not special.
    """
    for key, kind in (("additional_special_tokens", list), ("added_tokens_decoder", dict)):
        if not isinstance(config.get(key) or kind(), kind):
            raise ModelError(
                f"{path}: {key} is {config[key]!r:.80}: take the file of the model's tokenizer"
            )
    added = [*(config.get("added_tokens_decoder") or {}).values()]
    names = []
    for token in [*(config.get("additional_special_tokens") or []), *added]:
        name = token.get("content") if isinstance(token, dict) else token
        is_text = token in added and not (isinstance(token, dict) and token.get("special"))
        if is_text or not isinstance(name, str):
            raise ModelError(
                f"{path}: adds {name!r:.80} to the vocabulary as text: only special tokens can be "
                "taken over"
            )
        names.append(name)
    return names
