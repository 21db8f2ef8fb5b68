"""The parameter files (.prm) of EVALB: what is compared, and what is left out."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.errors import DataError

LARGEST_FILE = 2**20
"""A parameter file of more bytes than this is refused; the official files have fewer than 4,000."""

_EqualPairs = frozenset[tuple[bytes, bytes]]
"""Pairs of labels or words that count as equal, each in both orders."""


@dataclass(frozen=True)
class EvalbParameters:
    """The content of a parameter file. The defaults are what EVALB does without such a file."""

    deleted: frozenset[bytes] = frozenset()
    """DELETE_LABEL: words with these tags, and brackets with these labels, are left out."""
    not_in_length: frozenset[bytes] = frozenset()
    """DELETE_LABEL_FOR_LENGTH: words with these tags do not count in a sentence's length."""
    quotes: frozenset[bytes] = frozenset()
    """QUOTE_LABEL: tags of quotation marks. If a mark is left out of only one of the two trees, it
    may be put back."""
    equal_labels: _EqualPairs = frozenset()
    """EQ_LABEL: labels that count as equal."""
    equal_words: _EqualPairs = frozenset()
    """EQ_WORD: words that count as equal."""
    labelled: bool = True
    """LABELED: whether matching brackets must have equal labels."""
    cutoff: int = 40
    """CUTOFF_LEN: EVALB's second block of scores is for sentences of at most this many words."""
    max_errors: int = 10
    """MAX_ERROR: this many messages and one more are allowed; the next ends the comparison."""

    def same_label(self, one: bytes, other: bytes) -> bool:
        """Whether two labels, or two tags, count as equal."""
        return one == other or (one, other) in self.equal_labels

    def same_word(self, one: bytes, other: bytes) -> bool:
        """Whether two words count as equal."""
        return one == other or (one, other) in self.equal_words

    @cached_property
    def deleted_brackets(self) -> frozenset[bytes]:
        """Labels whose brackets are left out: deleted labels, and labels equal to a deleted one."""
        return self.deleted | {one for one, other in self.equal_labels if other in self.deleted}


def _pairs(values: list[bytes]) -> _EqualPairs:
    given = [(one, other) for one, other in map(bytes.split, values)]
    return frozenset(given + [(other, one) for one, other in given])


COLLINS = EvalbParameters(
    deleted=frozenset({b"TOP", b"-NONE-", b",", b":", b"``", b"''", b"."}),
    not_in_length=frozenset({b"-NONE-"}),
    equal_labels=_pairs([b"ADVP PRT"]),
)
"""COLLINS.prm, with which results on the Penn Treebank are reported."""

_NUMBERS = [b"DEBUG", b"MAX_ERROR", b"CUTOFF_LEN", b"LABELED"]
_PAIRS = [b"EQ_LABEL", b"EQ_WORD"]
_LABELS = [b"DELETE_LABEL", b"DELETE_LABEL_FOR_LENGTH", b"QUOTE_LABEL"]


def read_parameters(path: str | Path) -> tuple[EvalbParameters, list[str]]:
    """Read the parameters in a file; return them and messages about lines that are ignored.

    The messages are EVALB's, or ours where EVALB is silent. Raises DataError if the file cannot be
    read or has more than LARGEST_FILE bytes.
    """
    values: dict[bytes, list[bytes]] = {key: [] for key in _NUMBERS + _PAIRS + _LABELS}
    said = []
    for number, line in enumerate(_lines(path), start=1):
        line = line.rstrip()
        if line.startswith(b"#") or len(line) < 3:
            continue
        key, *rest = re.split(rb"\s+", line, maxsplit=1)
        if key not in values:
            text = line.decode("utf-8", "surrogateescape")
            said.append(f"Unknown keyword ({text}) in parameter file")
        elif not rest:
            said.append(f"{path}:{number}: {key.decode()} has no value: this line is ignored")
        elif key in _PAIRS and len(rest[0].split()) != 2:
            said.append(f"{key.decode()} requires two values")
        else:
            values[key] += rest
    numbers = {key: _number(values[key][-1]) for key in _NUMBERS if values[key]}
    if numbers.get(b"DEBUG"):
        said.append(f"{path}: DEBUG is ignored: only the table and the summary are printed")
    parameters = EvalbParameters(
        deleted=frozenset(values[b"DELETE_LABEL"]),
        not_in_length=frozenset(values[b"DELETE_LABEL_FOR_LENGTH"]),
        quotes=frozenset(values[b"QUOTE_LABEL"]),
        equal_labels=_pairs(values[b"EQ_LABEL"]),
        equal_words=_pairs(values[b"EQ_WORD"]),
        labelled=numbers.get(b"LABELED", 1) != 0,
        cutoff=numbers.get(b"CUTOFF_LEN", EvalbParameters.cutoff),
        max_errors=numbers.get(b"MAX_ERROR", EvalbParameters.max_errors),
    )
    return parameters, said


def _lines(path: str | Path) -> list[bytes]:
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from None
    if len(text) > LARGEST_FILE:
        raise DataError(f"is not a parameter file: it has more than {LARGEST_FILE:,} bytes", path)
    return text.split(b"\n")


def _number(value: bytes) -> int:
    """The number that C's atoi reads: a sign, if any, and digits at the start; 0 without digits."""
    digits = re.match(rb"[+-]?\d{1,18}", value)
    return int(digits[0]) if digits else 0
