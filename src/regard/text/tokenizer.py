"""§5.1 Sub-words: "Sentences were encoded using byte-pair encoding, which has a shared source-
target vocabulary", or for English-French "a 32000 word-piece vocabulary".

Both are learned over the 256 bytes of UTF-8, so that there is no unknown character: every Unicode
text survives encoding and decoding exactly. A line is cut before each of its spaces, one space
being set before the first word too, so that a word has the same pieces wherever it stands:

    "a rose is a rose"  ->  " a" " rose" " is" " a" " rose"  ->  pieces of each word

Decoding joins the pieces and takes that one space off again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import DataError, ModelError, RecipeError

TokenizerKind = Literal["bpe", "wordpiece"]
PAD, BOS, EOS = 0, 1, 2
SPECIAL = ("<pad>", "<s>", "</s>")
"""Never found in text: the three signs have ids, but no spelling that a reader could type."""

BYTE_ALPHABET = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
"""One printable character for each of the 256 bytes, as byte-level tokenizers write them."""
CONTINUED = "…"
"""Marks a word piece that goes on inside a word; not in BYTE_ALPHABET, so never mistaken for text."""
SYMBOL = "△"
"""Begins an entry that is no piece of text; not in BYTE_ALPHABET, so that no text is ever encoded as it."""
LONGEST_LEARNT = 10_000
"""Characters of the longest line that is learned from; beyond it is no sentence."""
LARGEST_TOKENIZER, MOST_ENTRIES = 64 * 2**20, 1_000_000
"""Bytes and entries of the largest tokenizer.json that is read."""
_LONGEST_WORD = 100  # bytes that word-piece matching, quadratic in them, sees at a time
_MEMO_WORDS, _MEMO_CHARACTERS = 150_000, 64  # bounds of what encode remembers, twice: about 70 MB


class Tokenizer:
    """Text to ids and back, exactly; one vocabulary for source and target.

    Ids 0, 1 and 2 are <pad>, <s> and </s>; the rest are pieces of UTF-8 text.
    """

    def __init__(self, library: tokenizers.Tokenizer):
        library.encode_special_tokens = True  # "</s>" typed by a user is four characters of text
        self._library = library
        self._pieces = _WordPieces(library)
        self.size: int = library.get_vocab_size()

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer]]:
        """Pickled without what `encode` remembers."""
        return Tokenizer, (self._library,)

    @classmethod
    def learn(
        cls, lines: Iterable[str], kind: TokenizerKind, vocabulary: int, symbols: Sequence[str] = ()
    ) -> Tokenizer:
        """Learn at most `vocabulary` entries (fewer where the text has no more pairs that recur).

        `symbols`, which no text is encoded as, are the last of them.

        Lines of over 10,000 characters are passed over. The same lines in the same order give the
        same tokenizer. Raises RecipeError for a vocabulary too small to hold the bytes and
        symbols, DataError for lone surrogates.
        """
        continued = [CONTINUED + byte for byte in BYTE_ALPHABET] if kind == "wordpiece" else []
        least = len(SPECIAL) + len(BYTE_ALPHABET) + len(continued) + len(symbols)
        if vocabulary < least:
            and_symbols = f", and {len(symbols)} symbols of trees" * bool(symbols)
            raise RecipeError(
                f"tokenizer.vocabulary: {vocabulary} entries cannot hold the bytes and the special "
                f"symbols of {kind}{and_symbols}: give at least {least}"
            )
        library = tokenizers.Tokenizer(_empty(kind))
        library.normalizer = normalizers.Prepend(" ")
        # Cutting before every space changes nothing for a word, so learning does without.
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        wanted: dict[str, Any] = {
            "vocab_size": vocabulary - len(symbols),
            "min_frequency": 2,
            "special_tokens": [*SPECIAL, *continued],
            "initial_alphabet": list(BYTE_ALPHABET),
            "show_progress": False,
        }
        trainer = (
            trainers.BpeTrainer(**wanted)
            if kind == "bpe"
            else trainers.WordPieceTrainer(**wanted, continuing_subword_prefix=CONTINUED)
        )
        library.train_from_iterator(_learnt_from(lines), trainer)
        learnt = cls(_assembled(library.model, kind))
        return learnt.with_symbols(symbols) if symbols else learnt

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read tokenizer.json; raises ModelError when it is missing, damaged or not ours.

        Of a file that a stranger made nothing but the vocabulary is used: patterns could be made
        to take for ever.
        """
        try:
            text = _read(Path(path))
        except OSError as error:
            raise ModelError(f"{path}: cannot read the tokenizer: {error.strerror}") from None
        except ValueError as error:
            raise ModelError(f"{path}: damaged, or not a tokenizer: {error}") from None
        try:
            content = json.loads(text)
            kind, model = _model(content["model"])
        except Exception:  # of what is no tokenizer anything may be wrong
            raise ModelError(f"{path}: damaged, or not a tokenizer") from None
        entries = content["model"].pop("vocab")
        content["model"].pop("merges", None)
        specials = [entries.get(token) for token in SPECIAL]
        dense = sorted(entries.values()) == list(range(len(entries)))
        ours = json.loads(_assembled(_empty(kind), kind).to_str())
        if (
            specials != [PAD, BOS, EOS]
            or not entries.keys() >= set(BYTE_ALPHABET)
            or not dense
            or max(map(len, entries)) > 4 * LONGEST_LEARNT
            or not _agrees(content, ours)
        ):
            raise ModelError(f"{path}: a tokenizer, but not one of regard: learn it with `prepare`")
        return cls(_assembled(model, kind))

    def with_symbols(self, symbols: Sequence[str]) -> Tokenizer:
        """The same pieces, and an entry for each of these names: what is written besides text.

        They have the highest ids, in this order.
        """
        content = json.loads(self._library.to_str())["model"]
        content["vocab"] |= {SYMBOL + name: self.size + i for i, name in enumerate(symbols)}
        kind, model = _model(content)
        return Tokenizer(_assembled(model, kind))

    @cached_property
    def symbols(self) -> dict[str, int]:
        """The ids of the symbols, by name, in order."""
        entries = self._library.get_vocab(with_added_tokens=False)
        found = {name: i for name, i in entries.items() if name.startswith(SYMBOL)}
        return {name[len(SYMBOL) :]: i for name, i in sorted(found.items(), key=lambda it: it[1])}

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json as a whole or not at all; raises OSError."""
        path = Path(path)
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(self._library.to_str())
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the tokenizer as canonical JSON: no two vocabularies share it."""
        content = json.loads(self._library.to_str())
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, lines: Sequence[str]) -> list[list[int]]:
        """The pieces of each line, without <s> or </s>; an empty line has none.

        Raises DataError for a lone surrogate, which is no character and has no UTF-8.
        """
        return [ids.tolist() for ids in self.encode_arrays(lines)]

    def encode_arrays(self, lines: Sequence[str]) -> list[NDArray[np.uint32]]:
        """As `encode`, of a corpus: each line's ids as an array that is only to be read."""
        pieces = self._pieces.__getitem__
        try:
            return [
                np.frombuffer(b"".join(map(pieces, line.split(" "))) if line else b"", np.uint32)
                for line in lines
            ]
        except TypeError:
            _refuse_surrogates(lines)
            raise

    def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids: the inverse of `encode`.

        <pad>, <s>, </s> and ids beyond the vocabulary are passed over; pieces that do not add up
        to UTF-8, which only a model can write, show as U+FFFD.
        """
        rows = [[int(i) for i in row if EOS < i < self.size] for row in ids]
        return self._library.decode_batch(rows, skip_special_tokens=False)


class _WordPieces(dict[str, bytes]):
    """The pieces of a word with the space before it: looked up, or encoded once and remembered.

    A corpus repeats its words, so looking up is five times faster than encoding whole lines. Pieces
    are kept as the bytes of uint32, which are small, quickly joined and no work for the collector.
    """

    def __init__(self, library: tokenizers.Tokenizer):
        super().__init__()
        self._library = library
        self._older: dict[str, bytes] = {}

    def __missing__(self, word: str) -> bytes:
        ids = self._older.get(word)
        if ids is None:
            ids = self._encoded(word)
        if len(word) <= _MEMO_CHARACTERS:
            if len(self) >= _MEMO_WORDS:
                self._older = dict(self)  # from where the frequent words come back
                self.clear()
            self[word] = ids
        return ids

    def _encoded(self, word: str) -> bytes:
        if word:
            ids = self._library.encode(word, add_special_tokens=False).ids
        else:  # between two spaces
            ids = self._library.encode(" ", add_special_tokens=False).ids[:1]
        return np.array(ids, np.uint32).tobytes()


def _learnt_from(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) <= LONGEST_LEARNT:
            if not line.isascii():
                _refuse_surrogates([line], number)
            yield line


def _assembled(model: models.Model, kind: TokenizerKind) -> tokenizers.Tokenizer:
    """A vocabulary with all that goes around it: cut at spaces, and a decoder."""
    library = tokenizers.Tokenizer(model)
    library.add_special_tokens(list(SPECIAL))
    cut: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(" ", "merged_with_next"),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
    join: list[decoders.Decoder] = [decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]
    if kind == "wordpiece":
        cut.append(pre_tokenizers.Split(Regex(f".{{1,{_LONGEST_WORD}}}"), "isolated"))
        join.insert(0, decoders.Replace(CONTINUED, ""))
    library.normalizer = normalizers.Prepend(" ")
    library.pre_tokenizer = pre_tokenizers.Sequence(cut)
    library.decoder = decoders.Sequence(join)
    return library


def _empty(kind: TokenizerKind) -> models.Model:
    if kind == "bpe":
        return models.BPE()
    return models.WordPiece(continuing_subword_prefix=CONTINUED)


def _read(path: Path) -> str:
    """Raises OSError, or ValueError for what would be no tokenizer or take too much memory."""
    if path.stat().st_size > LARGEST_TOKENIZER:
        raise ValueError(f"it has more than {LARGEST_TOKENIZER // 2**20} MiB")
    if not (path.is_file() or path.is_dir()):
        raise ValueError("it is not a regular file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    if text.count(",") > 4 * MOST_ENTRIES:  # a number and the two parts of a merge for each
        raise ValueError(f"it has more than {MOST_ENTRIES:,} entries")
    return text


def _model(content: dict[str, Any]) -> tuple[TokenizerKind, models.Model]:
    """What a tokenizer.json says of its model; raises anything where that is no model."""
    vocabulary: dict[str, int] = content["vocab"]
    if not all(type(i) is int for i in vocabulary.values()):
        raise TypeError
    if content["type"] == "BPE":
        return "bpe", models.BPE(vocabulary, [(left, right) for left, right in content["merges"]])
    return "wordpiece", models.WordPiece(vocabulary, continuing_subword_prefix=CONTINUED)


def _agrees(given: Any, ours: Any) -> bool:
    """Whether all that is given is as ours; what an older library did not write yet may lack."""
    if isinstance(given, dict) and isinstance(ours, dict):
        return all(key in ours and _agrees(value, ours[key]) for key, value in given.items())
    if isinstance(given, list) and isinstance(ours, list):
        return len(given) == len(ours) and all(map(_agrees, given, ours))
    return bool(given == ours)


def _refuse_surrogates(lines: Iterable[str], first: int = 1) -> None:
    for number, line in enumerate(lines, first):
        try:
            line.encode()
        except UnicodeEncodeError as error:
            found = ord(line[error.start])
            raise DataError(
                f"line {number} has a lone surrogate (U+{found:04X}) at character "
                f"{error.start + 1}: it is not Unicode text; decode it as UTF-8 or UTF-16 first"
            ) from None
