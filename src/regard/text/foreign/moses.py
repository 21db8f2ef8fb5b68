"""A tokenizer that divides text into words like Moses, and words into pieces like subword-nmt.

The Python packages sacremoses and subword-nmt do the work.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field

from regard.errors import MissingExtra, ModelError
from regard.sections import Section
from regard.text.foreign.base import ForeignTokenizer, LeftOutIfFalse
from regard.text.foreign.files import (
    Original,
    order_by_names,
    read_original,
    read_vocabulary,
    vocabulary_file,
)
from regard.text.foreign.order import Specials
from regard.text.foreign.tables import PieceTable
from regard.text.protocol import SideName
from regard.text.tokenizer import MOST_ENTRIES

LONGEST_WORD = 1000
"""Words of more characters than this are cut into parts: merging takes quadratic time."""
LONGEST_MERGE = 200
"""A merge that makes a piece of more characters than this is refused."""
_MOST_REMEMBERED = 150_000  # without this limit, subword-nmt would cache all words
_END = "</w>"

_Language = Annotated[str, Field(pattern="^[a-z]{2,3}$")]
_Pieces = Annotated[str, Field(min_length=1, max_length=10)]


class MosesSettings(Section):
    """Settings of Moses' tokenizer and of subword-nmt."""

    source_language: _Language = "en"
    target_language: _Language = "en"
    tokenised: bool = True
    """Whether Moses' rules divide text into words and join words to text. Otherwise, text is
    divided at blanks, and words are joined by spaces."""
    escaped: bool = True
    """Whether characters such as & and quotes are escaped, for example & as &amp;, as Moses does by
    default. Without `tokenised`, no text is escaped."""
    dashes_split: bool = False
    """Whether a-b becomes a @-@ b: Moses' aggressive dash splitting."""
    normalised: bool = False
    """Whether Moses' rules for punctuation are applied before the text is divided into words."""
    lowercased: bool = False
    separator: _Pieces = "@@"
    """The mark at the end of each piece of a word except the last."""
    threshold: int | None = None
    """A piece of the target is divided into smaller pieces if the file target.counts lacks the
    piece, or gives it a count below this number. If the threshold is None, only pieces that the
    file lacks are divided. Without such a file, the threshold is not used."""
    source_threshold: int | None = None
    """Like `threshold`, but for pieces of the source and for the file source.counts."""
    unknown: str = "<unk>"
    """The piece that stands for every piece that the vocabulary lacks."""
    skipped: tuple[str, ...] = ("<pad>", "<s>", "</s>", "<unk>")
    """Pieces that decoding leaves out."""
    restricted: LeftOutIfFalse = False
    """Whether a merged piece that the vocabulary lacks is divided into smaller pieces, as in
    JoeyNMT. If True, the counts and thresholds are not used."""


class MosesTokenizer(ForeignTokenizer[MosesSettings]):
    """Divides text into words, and words into pieces if there are merges of subword-nmt."""

    kind = "moses"
    needed = ("vocab.json",)
    allowed = (
        *("vocab.json", "target_vocab.json", "source.codes", "target.codes"),
        *("source.counts", "target.counts"),
    )
    settings_type = MosesSettings

    @classmethod
    def read(
        cls,
        vocabulary: str | Path | Mapping[str, int],
        target_vocabulary: str | Path | Mapping[str, int] | None = None,
        *,
        codes: str | Path | None = None,
        target_codes: str | Path | None = None,
        counts: str | Path | None = None,
        target_counts: str | Path | None = None,
        specials: Specials | None = None,
        source_specials: Specials | None = None,
        size: int | None = None,
        source_size: int | None = None,
        settings: MosesSettings | None = None,
    ) -> Self:
        """Read vocabularies, merges and counts.

        `vocabulary` gives pieces their ids, on both sides unless `target_vocabulary` is given.
        `codes` are the merges that subword-nmt learned, for both sides unless `target_codes` are
        given. `counts` is a file of the source's pieces and their counts, and `target_counts` is
        such a file for the target; `settings` has a threshold for each file. `specials` and `size`
        describe the target; `source_specials` and `source_size` describe the source, if there are
        two vocabularies. By default, special symbols are looked up by the names <pad>, <s> and
        </s>, and the size follows from the largest id. Raises ModelError if a file cannot be used,
        MissingExtra if there are merges and subword-nmt is not installed.
        """
        files = {"vocab.json": vocabulary_file(vocabulary, "vocab.json")}
        if target_vocabulary is not None:
            files["target_vocab.json"] = vocabulary_file(target_vocabulary, "target_vocab.json")
        for name, path in (
            ("source.codes", codes),
            ("target.codes", target_codes),
            ("source.counts", counts),
            ("target.counts", target_counts),
        ):
            if path is not None:
                files[name] = read_original(path)
        apart = target_vocabulary is not None
        ids = read_vocabulary(files["target_vocab.json" if apart else "vocab.json"])
        order, source_order = order_by_names(ids, specials, size), None
        if apart:
            ids = read_vocabulary(files["vocab.json"])
            source_order = order_by_names(ids, source_specials, source_size)
        return cls(order, source_order, settings or MosesSettings(), files)

    def _open(self) -> None:
        import sacremoses  # this import is slow, so it is done only when needed

        its = self.settings
        languages = {"source": its.source_language, "target": its.target_language}
        self._words = {side: sacremoses.MosesTokenizer(lang) for side, lang in languages.items()}
        self._texts = {side: sacremoses.MosesDetokenizer(lang) for side, lang in languages.items()}
        self._rules = {
            side: sacremoses.MosesPunctNormalizer(lang) for side, lang in languages.items()
        }
        self._tables, self._merges = {}, {}
        thresholds: dict[SideName, int | None] = {
            "source": its.source_threshold,
            "target": its.threshold,
        }
        for side, threshold in thresholds.items():
            name = "target_vocab.json" if side == "target" and not self.shared else "vocab.json"
            vocabulary = read_vocabulary(self.files[name])
            path = self.files[name].path
            self._tables[side] = PieceTable(vocabulary, self.order_of(side), its.unknown, path)
            codes = self.files.get(f"{side}.codes", self.files.get("source.codes"))
            counts = self.files.get(f"{side}.counts")
            frequent = None if counts is None else _frequent(counts, threshold)
            if its.restricted:
                frequent = vocabulary.keys() - its.skipped
            self._merges[side] = codes and _merges(codes, its.separator, frequent)

    def unknown(self, side: SideName) -> int:
        """regard's id of the piece that stands for unknown pieces."""
        return self._tables[side].unknown

    def _encoded(self, lines: Sequence[str], side: SideName) -> Iterator[list[int]]:
        for line in lines:
            yield self._tables[side].ids(self._cut(line, side))

    def _cut(self, line: str, side: SideName) -> list[str]:
        """The pieces of a line."""
        words, merges = self._words_of(line, side), self._merges[side]
        if merges is None:
            return words
        if len(merges.cache) > _MOST_REMEMBERED:
            merges.cache.clear()
        pieces: list[str] = []
        for word in words:
            for begin in range(0, len(word), LONGEST_WORD):
                if begin:
                    pieces[-1] += self.settings.separator
                pieces += merges.segment_tokens([word[begin : begin + LONGEST_WORD]])
        return pieces

    def _words_of(self, line: str, side: SideName) -> list[str]:
        its = self.settings
        if its.normalised and line:
            line = self._rules[side].normalize(line)
        words = line.split()
        if its.tokenised:
            words = self._words[side].tokenize(
                line, aggressive_dash_splits=its.dashes_split, escape=its.escaped
            )
        return [word.lower() for word in words] if its.lowercased else words

    def _joined(self, foreign: list[int], side: SideName) -> str:
        pieces = [p for p in self._pieces(foreign, side) if p not in self.settings.skipped]
        text = self._without_separators(" ".join(pieces))
        if not self.settings.tokenised:
            return text
        words = text.split()
        return str(self._texts[side].detokenize(words, unescape=self.settings.escaped))

    def _without_separators(self, text: str) -> str:
        separator = re.escape(self.settings.separator)
        return re.sub(f"{separator} |{separator}$", "", text)

    def _pieces(self, foreign: list[int], side: SideName) -> list[str]:
        known = self._tables[side].pieces
        return [known.get(i, "") for i in foreign]

    def _named(self, foreign: list[int], side: SideName) -> list[str]:
        """The text of each piece, with a space before it if the piece begins a word.

        The space is left out if the decoded text has no space between the word and the word before.
        """
        text, place, found = self._joined(foreign, side), 0, []
        for pieces in self._by_word(self._pieces(foreign, side)):
            word = self._unescaped("".join(pieces), side)
            start = place + len(text[place:]) - len(text[place:].lstrip())
            begins = start > place or not place
            if text.startswith(word, start):
                place = start + len(word)
            else:
                begins = True
            names = [self._unescaped(piece, side) for piece in pieces]
            found += [" " * begins + names[0], *names[1:]]
        return found

    def _by_word(self, pieces: list[str]) -> list[list[str]]:
        """The pieces of each word, without separators."""
        separator = self.settings.separator
        groups: list[list[str]] = []
        inside = False
        for piece in pieces:
            if not inside:
                groups.append([])
            groups[-1].append(piece.removesuffix(separator))
            inside = piece.endswith(separator)
        return groups

    def _unescaped(self, text: str, side: SideName) -> str:
        """A piece or word as it is in the decoded text, without Moses' escapes and dash marks."""
        if not self.settings.tokenised:
            return text
        if self.settings.dashes_split and text == "@-@":
            return "-"
        return str(self._texts[side].unescape_xml(text)) if self.settings.escaped else text


def _lines(file: Original) -> list[str]:
    try:
        text = file.content.decode("utf-8")
    except UnicodeDecodeError:
        raise ModelError(f"{file.path}: damaged: it is not UTF-8 text") from None
    lines = text.rstrip("\n").split("\n")
    if len(lines) > MOST_ENTRIES:
        raise ModelError(f"{file.path}: it has more than {MOST_ENTRIES:,} lines")
    return lines


def _merges(file: Original, separator: str, frequent: set[str] | None) -> Any:
    """The encoder of subword-nmt with the merges in `file`.

    The encoder writes `separator` after each piece of a word except the last. If `frequent` is a
    set, the encoder divides each merged piece that the set lacks into smaller pieces.

    Raises ModelError if the file is invalid: with some invalid files, subword-nmt would end the
    process. Raises MissingExtra if subword-nmt is not installed.
    """
    try:
        from subword_nmt.apply_bpe import BPE
    except ImportError:
        raise MissingExtra("a tokenizer with merges of subword-nmt", "exchange") from None
    lines = _lines(file)
    versioned = lines[0].startswith("#version:")
    if versioned and lines[0].split()[-1] not in ("0.1", "0.2"):
        raise ModelError(
            f"{file.path}: its version is {lines[0][9:].strip()!r:.80}, and only 0.1 and 0.2 are "
            "known: learn it again with subword-nmt"
        )
    if versioned and len(lines) == 1:
        raise ModelError(f"{file.path}: has no merges: leave it out")
    for number, line in enumerate(lines[versioned:], 1 + versioned):
        pair = line.strip("\r\n ").split(" ")
        joined = "".join(pair)
        if len(pair) != 2 or not all(pair) or joined == _END or len(joined) > LONGEST_MERGE:
            raise ModelError(
                f"{file.path}:{number}: is no merge: a line has two pieces, with one space between "
                f"them, of at most {LONGEST_MERGE} characters together"
            )
    return BPE(io.StringIO("\n".join(lines)), separator=separator, vocab=frequent)


def _frequent(file: Original, threshold: int | None) -> set[str]:
    """The pieces whose count is at least `threshold`, or all pieces if `threshold` is None.

    Each line of the file must have a piece and its count; if not, ModelError is raised.
    """
    found = set()
    for number, line in enumerate(_lines(file), 1):
        piece, _, count = line.strip("\r\n ").partition(" ")
        if not (piece and count.isdecimal() and len(count) < 20):
            raise ModelError(f"{file.path}:{number}: is not a piece and its count")
        if threshold is None or int(count) >= threshold:
            found.add(piece)
    return found
