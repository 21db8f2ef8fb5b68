"""§5.1 Sub-words: "Sentences were encoded using byte-pair encoding, which has a shared source-
target vocabulary", or for English-French "a 32000 word-piece vocabulary".

Both kinds of sub-words, also called pieces, are learned from the bytes of the text in UTF-8, and
each of the 256 bytes is a piece. So no character is unknown, and encoding and decoding restore
every Unicode text exactly. A space is put before the first word. The line is cut before each space,
and between letters, digits and other characters. Therefore, a word has the same pieces wherever it
stands:

    "a rose is a rose"  ->  " a" " rose" " is" " a" " rose"  ->  pieces of each word

Decoding joins the pieces and removes the first space again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import ModelError, RecipeError
from regard.files.whole import new_file
from regard.text.memory import WordIds
from regard.text.protocol import SideName
from regard.text.wordpieces import learn_pieces
from regard.text.words import count_words, refuse_surrogates

TokenizerKind = Literal["bpe", "wordpiece"]
PAD, BOS, EOS = 0, 1, 2
SPECIAL = ("<pad>", "<s>", "</s>")
"""The entries of ids 0, 1 and 2. No text is encoded as one of these entries: a typed "</s>" is
encoded like any other text."""

BYTE_ALPHABET = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))
"""The 256 printable characters by which byte-level tokenizers write bytes, one for each byte."""
_SPACE = "Ġ"  # the character of BYTE_ALPHABET for a space
CONTINUED = "…"
"""First character of a word piece that continues a word. BYTE_ALPHABET lacks this character, so it
never stands for a byte of text."""
SYMBOL = "△"
"""First character of the vocabulary entry of a symbol, such as a bracket of a tree; the symbol's
name follows. BYTE_ALPHABET lacks this character, so no text is encoded as a symbol."""
_BLANKS = re.compile("  +")
LONGEST_LEARNT = 10_000
"""Nothing is learned from a line of more characters than this: such a line is not a sentence."""
LARGEST_TOKENIZER, MOST_ENTRIES = 64 * 2**20, 1_000_000
"""The most bytes of a tokenizer.json, and the most entries of a vocabulary. In regard's own
tokenizer.json, entries are not counted, but estimated from the number of commas (`_read`)."""
# Word-piece encoding takes a time that is quadratic in the length of a word. So words are cut into
# parts of at most this many bytes.
_LONGEST_WORD = 100


class Tokenizer:
    """Encodes text as ids, and decodes ids to the same text; source and target share a vocabulary.

    Ids 0, 1 and 2 are <pad>, <s> and </s>; then come pieces of UTF-8 text, then any symbols. `size`
    is the number of entries.
    """

    def __init__(self, library: tokenizers.Tokenizer):
        library.encode_special_tokens = True  # a typed "</s>" is four characters of text
        self._library = library
        self._pieces = WordIds(library)
        self.size: int = library.get_vocab_size()
        self.source_size = self.size
        self.shared = True

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[tokenizers.Tokenizer]]:
        """Pickle the tokenizer without the words that `encode` remembers."""
        return Tokenizer, (self._library,)

    @classmethod
    def learn(
        cls, lines: Iterable[str], kind: TokenizerKind, vocabulary: int, symbols: Sequence[str] = ()
    ) -> Tokenizer:
        """Learn a tokenizer with at most `vocabulary` entries.

        Learning ends early if all pairs of neighbouring pieces occur only once. For word pieces, it
        also ends early if joining a pair can no longer make the text more likely. The last entries
        are `symbols`; no text is encoded as a symbol. Lines of more than LONGEST_LEARNT characters
        are ignored. Equal lines in equal order give an equal tokenizer. Raises RecipeError for a
        `vocabulary` that cannot hold the bytes and symbols, and DataError for a lone surrogate.
        """
        # BPE has one entry for each byte. Word pieces have two: to begin and to continue a word.
        forms = 1 if kind == "bpe" else 2
        least = len(SPECIAL) + forms * len(BYTE_ALPHABET) + len(symbols)
        if vocabulary < least:
            and_symbols = f", and {len(symbols)} symbols of trees" * bool(symbols)
            raise RecipeError(
                f"tokenizer.vocabulary: {vocabulary} entries cannot hold the bytes and the special "
                f"symbols of {kind}{and_symbols}: give at least {least}"
            )
        learn = _learn_merges if kind == "bpe" else _learn_pieces
        model = learn(_learnt_from(lines), vocabulary - len(symbols))
        learnt = cls(_assembled(model, kind))
        return learnt.with_symbols(symbols) if symbols else learnt

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read tokenizer.json; raises ModelError if it is missing, damaged or not made by regard.

        Anybody may have made the file. So only its vocabulary and its merges are used, and not its
        regular expressions: matching one of them might never end.
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
        except Exception:  # a file that is not a tokenizer can raise any exception
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
            raise ModelError(
                f"{path}: a tokenizer, but not made by regard: learn it with `prepare`"
            )
        return cls(_assembled(model, kind))

    def with_symbols(self, symbols: Sequence[str]) -> Tokenizer:
        """A copy of this tokenizer with a further entry for each symbol, such as a token of trees.

        `symbols` are the names of the symbols; the new entries get the next ids, in this order.
        """
        content = json.loads(self._library.to_str())["model"]
        content["vocab"] |= {SYMBOL + name: self.size + i for i, name in enumerate(symbols)}
        kind, model = _model(content)
        return Tokenizer(_assembled(model, kind))

    @cached_property
    def entries(self) -> tuple[str, ...]:
        """The names of all entries, as they stand in tokenizer.json, in the order of the ids."""
        named = self._library.get_vocab()
        return tuple(sorted(named, key=lambda name: named[name]))

    @cached_property
    def symbols(self) -> dict[str, int]:
        """A map from the name of each symbol to its id, in the order of the ids."""
        named = enumerate(self.entries)
        return {name[len(SYMBOL) :]: i for i, name in named if name.startswith(SYMBOL)}

    @cached_property
    def merges(self) -> NDArray[np.uint32]:
        """[merges, 3] The two ids that each merge joins, and the id that they become.

        Merges are in the order in which they were learned; word pieces have no merges.
        """
        content = json.loads(self._library.to_str())["model"]
        ids = content["vocab"]
        rows = [(ids[a], ids[b], ids[a + b]) for a, b in content.get("merges", [])]
        return np.array(rows, np.uint32).reshape(-1, 3)

    @cached_property
    def space(self) -> int:
        """The id of the space, with which the first sub-word of each word begins."""
        return self._library.get_vocab(with_added_tokens=False)[_SPACE]

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json, whole or not at all; raises OSError."""
        with new_file(Path(path)) as file:
            file.write(self._library.to_str().encode())

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the tokenizer as canonical JSON, by which two tokenizers can be compared."""
        content = json.loads(self._library.to_str())
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def encode(self, lines: Sequence[str], side: SideName = "source") -> list[list[int]]:
        """The ids of each line, without <s> and </s>; an empty line has no ids.

        The ids do not depend on `side`, because one vocabulary serves source and target. Raises
        DataError for a lone surrogate, which is not a character and has no UTF-8 form.
        """
        return [ids.tolist() for ids in self.encode_arrays(lines)]

    def encode_arrays(
        self, lines: Sequence[str], side: SideName = "source"
    ) -> list[NDArray[np.uint32]]:
        """The ids of each line as a read-only array; faster than `encode`, for a whole corpus.

        Raises DataError as `encode` does.
        """
        pieces = self._pieces.__getitem__
        try:
            return [
                np.frombuffer(b"".join(map(pieces, line.split(" "))) if line else b"", np.uint32)
                for line in lines
            ]
        except TypeError:
            refuse_surrogates(lines)
            raise

    def decode(self, ids: Sequence[Sequence[int]], side: SideName = "target") -> list[str]:
        """The text of each list of ids: the inverse of `encode`.

        <pad>, <s>, </s> and ids beyond the vocabulary are ignored. Bytes that are not valid UTF-8,
        which a model may write, become U+FFFD.
        """
        rows = [[int(i) for i in row if EOS < i < self.size] for row in ids]
        return self._library.decode_batch(rows, skip_special_tokens=False)

    def prefix(self, line: str) -> str:
        """An empty string, because no part of a line is an instruction to the model."""
        return ""

    def names(self, ids: Sequence[int], side: SideName) -> list[str]:
        """The text of each piece, with a space before it if the piece begins a word.

        The names of ids 0, 1 and 2 are <pad>, <s> and </s>; an id beyond the vocabulary has an
        empty name. Bytes that are only a part of a character become U+FFFD.
        """
        # Decoding removes the first space of a text. So each piece is decoded after the letter a.
        before = self.encode(["a"])[0]
        texts = self.decode([[*before, i] for i in ids])
        return [
            SPECIAL[i] if i <= EOS else text.removeprefix("a")
            for i, text in zip(ids, texts, strict=True)
        ]


def _learnt_from(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) <= LONGEST_LEARNT:
            if not line.isascii():
                refuse_surrogates([line], number)
            yield _BLANKS.sub(" ", line)


def _learn_merges(lines: Iterable[str], size: int) -> models.Model:
    """Learn byte-pair encoding with at most `size` entries."""
    library = tokenizers.Tokenizer(_empty("bpe"))
    library.normalizer = normalizers.Prepend(" ")
    # `_assembled` cuts text before each space, then by ByteLevel. Here the first cut is left out:
    # `_learnt_from` leaves only single spaces, so ByteLevel alone gives the same words.
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        special_tokens=list(SPECIAL),
        initial_alphabet=list(BYTE_ALPHABET),
        show_progress=False,
    )
    library.train_from_iterator(lines, trainer)
    return library.model


def _learn_pieces(lines: Iterable[str], size: int) -> models.Model:
    """Learn word pieces, with at most `size` entries (`text.wordpieces`)."""
    known = [*SPECIAL, *(CONTINUED + byte for byte in BYTE_ALPHABET), *BYTE_ALPHABET]
    pieces = learn_pieces(count_words(lines, _LONGEST_WORD), known, size, CONTINUED)
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    return models.WordPiece(vocabulary, continuing_subword_prefix=CONTINUED)


def _assembled(model: models.Model, kind: TokenizerKind) -> tokenizers.Tokenizer:
    """A tokenizer of the tokenizers library: `model` and all other steps to encode and decode."""
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
    """The text of a file; raises OSError, or ValueError if it cannot be a tokenizer.json."""
    if path.stat().st_size > LARGEST_TOKENIZER:
        raise ValueError(f"it has more than {LARGEST_TOKENIZER // 2**20} MiB")
    if not (path.is_file() or path.is_dir()):
        raise ValueError("it is not a regular file")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None
    if text.count(",") > 4 * MOST_ENTRIES:  # an entry and its merge have about three commas
        raise ValueError(f"it has more than {MOST_ENTRIES:,} entries")
    return text


def _model(content: dict[str, Any]) -> tuple[TokenizerKind, models.Model]:
    """Build a model from `content`, the section "model" of a tokenizer.json; return kind and model.

    If `content` is anything else, any exception may be raised.
    """
    vocabulary: dict[str, int] = content["vocab"]
    if not all(type(i) is int for i in vocabulary.values()):
        raise TypeError
    if content["type"] == "BPE":
        return "bpe", models.BPE(vocabulary, [(left, right) for left, right in content["merges"]])
    return "wordpiece", models.WordPiece(vocabulary, continuing_subword_prefix=CONTINUED)


def _agrees(given: Any, ours: Any) -> bool:
    """Whether `given`, from a file, equals `ours`; keys that older libraries omit may be absent."""
    if isinstance(given, dict) and isinstance(ours, dict):
        return all(key in ours and _agrees(value, ours[key]) for key, value in given.items())
    if isinstance(given, list) and isinstance(ours, list):
        return len(given) == len(ours) and all(map(_agrees, given, ours))
    return bool(given == ours)
