"""Make the tokenizer of a foreign model from its vocabularies and its sub-word models."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from regard.errors import ModelError, RecipeError
from regard.exchange.reading import checksum_of, text_of_file
from regard.text.foreign.base import ForeignTokenizer
from regard.text.foreign.files import read_original, read_vocabulary
from regard.text.foreign.moses import MosesSettings, MosesTokenizer
from regard.text.foreign.order import IdOrder
from regard.text.foreign.sentence_pieces import (
    SentencePieceSettings,
    SentencePieceTokenizer,
    pieces_in,
)
from regard.text.tokenizer import BOS, EOS, MOST_ENTRIES

Vocabulary = dict[str, int]
_ESCAPES = {
    "0": "\0", "a": "\a", "b": "\b", "t": "\t", "\t": "\t", "n": "\n", "v": "\v", "f": "\f",
    "r": "\r", "e": "\x1b", " ": " ", '"': '"', "/": "/", "\\": "\\", "N": "\x85", "_": "\xa0",
    "L": "\u2028", "P": "\u2029",
}  # fmt: skip
"""Escapes of YAML. A backslash and a key of this table stand for the value of the key. The escapes
that begin with x, u or U are not in the table: after these, hexadecimal digits give the code point
of a character."""


@dataclass(frozen=True)
class Texts:
    """The files and languages from which a tokenizer is made.

    Each field has up to two entries. One entry is used for both source and target; two entries are
    the source's and the target's, in this order.
    """

    vocabularies: Sequence[Path] = ()
    """Files of pieces and their ids: .json, .yml, or text with a piece on each line."""
    cutters: Sequence[Path] = ()
    """Files of SentencePiece models."""
    codes: Sequence[Path] = ()
    """Files of merges by subword-nmt. If `codes` and `cutters` are empty, each word is a piece."""
    languages: Sequence[str] = ()
    """Codes of the languages for Moses' tokenizer, such as "en". If `languages` and `cutters` are
    empty, text is divided at blanks."""

    def checksums(self, *others: Path) -> dict[str, str]:
        """SHA-256 of the tokenizer's files and of the files `others`, by file name.

        If files in different folders have the same name, their paths are used instead. Raises
        ModelError if a file cannot be read.
        """
        paths = {*others, *self.vocabularies, *self.cutters, *self.codes}
        times = Counter(path.name for path in paths)
        return {
            path.name if times[path.name] == 1 else str(path): checksum_of(path)
            for path in sorted(paths)
        }

    def refuse_unfit(self) -> None:
        """Raise RecipeError if a field has more than two entries, or if fields cannot be combined.

        `cutters` can be combined neither with `codes` nor with `languages`.
        """
        given = self.vocabularies, self.cutters, self.codes, self.languages
        for option, ones in zip(("vocab", "spm", "codes", "language"), given, strict=True):
            if len(ones) > 2:
                raise RecipeError(
                    f"--{option} {len(ones)} times: give it once, or once for the source and once "
                    "for the target"
                )
        if self.cutters and (self.codes or self.languages):
            raise RecipeError("--spm cuts text by itself: leave out --codes and --language")


@dataclass(frozen=True)
class SpecialNames:
    """The names of special pieces in a vocabulary; None if the foreign program has no such piece.

    `pad` is the padding, and `end` ends source and target. `unknown` stands for pieces that the
    vocabulary lacks. The decoder begins with the piece `begin`. The decoder outputs the piece
    `begin` or `pad` only if the same piece is also `end`.
    """

    pad: str | None
    begin: str | None
    end: str = "</s>"
    unknown: str = "<unk>"

    def ids(self, known: Vocabulary) -> tuple[int, int, int]:
        """The ids of `pad`, `begin` and `end` in `known`; -1 for a piece that `known` lacks.

        A piece with two of these roles gets one id, so that the softmax counts the piece once. The
        id of `pad` is -1 if the same piece is `begin` or `end`, and the id of `begin` is -1 if the
        same piece is `end`.
        """
        pad, begin = (-1 if n is None else known.get(n, -1) for n in (self.pad, self.begin))
        end = known.get(self.end, -1)
        return -1 if pad in (begin, end) else pad, -1 if begin == end else begin, end

    def start(self, order: IdOrder) -> int:
        """The foreign id of the piece `begin` in the target's vocabulary; -1 if it has no id.

        `order` maps foreign ids to regard's ids; `order.specials` must be a result of `ids`.
        """
        return order.specials[EOS if self.begin == self.end else BOS]

    @property
    def skipped(self) -> tuple[str, ...]:
        """The names of the special pieces, which are not part of any text.

        Their order is `end`, `unknown`, `pad`, `begin`. A name that is None is left out.
        """
        named = self.end, self.unknown, self.pad, self.begin
        return tuple(name for name in named if name is not None)


def tokenizer_of(
    texts: Texts,
    sizes: tuple[int, int],
    names: SpecialNames,
    *,
    shared: bool = False,
    given: Sequence[Vocabulary] = (),
    restricted: bool = False,
) -> ForeignTokenizer[Any]:
    """Make a tokenizer for a model; `sizes` are the sizes of its source and target vocabularies.

    `names` are the names of special pieces. With `shared`, source and target must have the same
    vocabulary. `given` are vocabularies that were found in the model itself, one for both sides or
    one for each; they replace the files `texts.vocabularies`. With `restricted`, words are divided
    only into pieces of the vocabulary and single characters.

    Raises ModelError if a file cannot be read, is damaged or does not fit the model. Raises
    RecipeError if `texts` has too few or too many files, if its files and languages cannot be
    combined, if it has too many languages, or if the code of a language is not two or three
    lower-case letters. Raises MissingExtra if a library that the tokenizer needs is not installed.
    """
    texts.refuse_unfit()
    known = _known(texts, given, shared)
    about: dict[str, Any] = {
        "specials": names.ids(known[-1]),
        "source_specials": names.ids(known[0]) if len(known) == 2 else None,
        "size": sizes[1],
        "source_size": sizes[0],
    }
    if len(known) == 1 and sizes[0] != sizes[1]:
        raise ModelError(
            f"the model has {sizes[0]:,} entries for the source and {sizes[1]:,} for the target, "
            "and there is one vocabulary: give --vocab twice"
        )
    first, second = known[0], known[1] if len(known) == 2 else None
    if texts.cutters:
        settings = SentencePieceSettings(
            unknown=names.unknown,
            skipped=names.skipped,
            language_codes=_has_language_codes(first, texts.cutters[0]),
            restricted=restricted,
        )
        two = texts.cutters[1] if len(texts.cutters) > 1 else None
        return SentencePieceTokenizer.read(
            texts.cutters[0], two, first, second, **about, settings=settings
        )
    codes, target_codes = [*texts.codes, None, None][:2]
    moses = _moses_settings(texts, names, restricted=restricted and bool(texts.codes))
    return MosesTokenizer.read(
        first, second, codes=codes, target_codes=target_codes, **about, settings=moses
    )


def _has_language_codes(vocabulary: Vocabulary, cutter: Path) -> bool:
    """Whether the vocabulary has pieces such as `>>de<<` that the SentencePiece model lacks.

    `cutter` is the file of the source's SentencePiece model.
    """
    codes = {piece for piece in vocabulary if piece.startswith(">>") and piece.endswith("<<")}
    return bool(codes) and not codes <= pieces_in(read_original(cutter)).keys()


def _moses_settings(texts: Texts, names: SpecialNames, *, restricted: bool) -> MosesSettings:
    languages = [*texts.languages, *texts.languages] or ["en", "en"]
    try:
        return MosesSettings(
            source_language=languages[0],
            target_language=languages[1],
            tokenised=bool(texts.languages),
            unknown=names.unknown,
            skipped=names.skipped,
            restricted=restricted,
        )
    except ValidationError as error:
        refused = error.errors()[0]["input"]
        raise RecipeError(
            f"{refused!r:.60} is no language for Moses' rules: give two or three small letters by "
            "--language, such as en"
        ) from None


def _known(texts: Texts, given: Sequence[Vocabulary], shared: bool) -> list[Vocabulary]:
    """The shared vocabulary alone, or two vocabularies: the source's and the target's.

    Raises the errors that `tokenizer_of` names.
    """
    known = list(given) or [read_vocabulary_of(path) for path in texts.vocabularies]
    if not known and not texts.cutters:
        raise RecipeError("give its vocabulary by --vocab, or its SentencePiece model by --spm")
    known = known or [pieces_in(read_original(path)) for path in texts.cutters]
    if len(known) == 2 and known[0] == known[1]:
        return known[:1]
    if len(known) == 2 and shared:
        raise ModelError("two vocabularies differ, and the model has one matrix for both: give one")
    return known


def read_vocabulary_of(path: Path) -> Vocabulary:
    """Read pieces and their ids from a file.

    A .json file is read as JSON, and a .yml or .yaml file as YAML with lines `piece: id`. In any
    other file, each line is a piece, and its id is the number of the line, from 0. Raises
    ModelError for a file that is missing, damaged or empty, and for a piece or an id that occurs
    twice.
    """
    if path.suffix == ".json":
        return read_vocabulary(read_original(path))
    lines = text_of_file(path).split("\n")
    if path.suffix in (".yml", ".yaml"):
        return _distinct(_pairs_of_yaml(lines, path), path)
    if lines[-1] == "":
        lines.pop()
    return _distinct([(line.rstrip("\r"), number) for number, line in enumerate(lines)], path)


def _pairs_of_yaml(lines: list[str], path: Path) -> list[tuple[str, Any]]:
    """The pieces and ids of the entries in lines of YAML; raises ModelError for a wrong entry."""
    pairs: list[tuple[str, Any]] = []
    for number, piece, digits in _entries_of_yaml(lines):
        if not digits.strip().isdecimal() or len(digits) > 20:
            raise ModelError(f"{path}:{number}: not a vocabulary: a line is a piece and its id")
        try:
            pairs.append((_unquoted(piece), int(digits)))
        except (ValueError, OverflowError, KeyError):
            raise ModelError(
                f"{path}:{number}: {piece:.60}: a backslash that means nothing in YAML: repair it"
            ) from None
    return pairs


def _entries_of_yaml(lines: list[str]) -> Iterator[tuple[int, str, str]]:
    """Yield three values for each entry: the number of its last line, the piece, and the id.

    The id is text, and "" if it is missing. An entry is a line `piece: id`, or two lines, `? piece`
    and `: id`. The piece may be in quotes.
    """
    waiting: str | None = None
    for number, line in enumerate(lines, 1):
        line = line.rstrip("\r")
        if not line.strip() or line in ("---", "...") or line.startswith("#"):
            continue
        if waiting is not None:
            yield number, waiting, line[2:] if line.startswith(": ") else ""
            waiting = None
        elif line.startswith("? "):
            waiting = line[2:]
        else:
            piece, _, digits = line.rpartition(":")
            yield number, piece, digits
    if waiting is not None:
        yield len(lines), waiting, ""


def _unquoted(piece: str) -> str:
    """The text of a piece that is written as `piece` in YAML, perhaps with quotes and escapes.

    Raises KeyError, ValueError or OverflowError for an escape that YAML does not have, or that does
    not stand for a character.
    """
    if len(piece) > 1 and piece[0] == piece[-1] == "'":
        return piece[1:-1].replace("''", "'")
    if not (len(piece) > 1 and piece[0] == piece[-1] == '"'):
        return piece
    text, found, i = piece[1:-1], "", 0
    while i < len(text):
        if text[i] != "\\":
            found, i = found + text[i], i + 1
            continue
        kind = text[i + 1 : i + 2]
        count = {"x": 2, "u": 4, "U": 8}.get(kind, 0)
        digits = text[i + 2 : i + 2 + count]
        if not re.fullmatch(f"[0-9A-Fa-f]{{{count}}}", digits):
            raise ValueError
        found += chr(int(digits, 16)) if count else _ESCAPES[kind]
        i += 2 + len(digits)
    found.encode()  # `encode` raises ValueError for half of a surrogate pair
    return found


def _distinct(pairs: list[tuple[str, Any]], path: Path) -> Vocabulary:
    known: Vocabulary = {}
    taken: set[int] = set()
    for piece, i in pairs:
        if type(i) is not int or not 0 <= i < MOST_ENTRIES:
            raise ModelError(f"{path}: {piece!r:.60} has the id {i!r:.60}: ids are 0, 1, 2, ...")
        if piece in known or i in taken:
            raise ModelError(f"{path}: {piece!r:.60}, with the id {i}, is there twice: repair it")
        known[piece] = i
        taken.add(i)
    if not known:
        raise ModelError(f"{path}: is empty: not a vocabulary")
    return known
