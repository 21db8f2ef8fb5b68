"""What is compared and what is left out: the parameter files (.prm) of EVALB."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.errors import DataError

LARGEST_FILE = 2**20
"""Bytes of the largest parameter file that is read; the official ones have under 4,000."""

_EqualPairs = frozenset[tuple[bytes, bytes]]


@dataclass(frozen=True)
class EvalbParameters:
    """One parameter file. The defaults are what the program does without any."""

    deleted: frozenset[bytes] = frozenset()
    """DELETE_LABEL: words with these tags go, and brackets with these labels."""
    not_in_length: frozenset[bytes] = frozenset()
    """DELETE_LABEL_FOR_LENGTH: words with these tags do not count in a sentence's length."""
    quotes: frozenset[bytes] = frozenset()
    """QUOTE_LABEL: tags of quotation marks, put back where only one side has deleted them."""
    equal_labels: _EqualPairs = frozenset()
    """EQ_LABEL: pairs of labels that are the same, each in both orders."""
    equal_words: _EqualPairs = frozenset()
    """EQ_WORD: pairs of words that are the same, each in both orders."""
    labelled: bool = True
    """LABELED: whether brackets must agree in their labels."""
    cutoff: int = 40
    """CUTOFF_LEN: the words of the longest sentence in the second block."""
    max_errors: int = 10
    """MAX_ERROR: a message with more than this many before it ends the run."""

    def same_label(self, one: bytes, other: bytes) -> bool:
        """Whether two labels, or two tags, are the same."""
        return one == other or (one, other) in self.equal_labels

    def same_word(self, one: bytes, other: bytes) -> bool:
        """Whether two words are the same."""
        return one == other or (one, other) in self.equal_words

    @cached_property
    def deleted_brackets(self) -> frozenset[bytes]:
        """Labels whose brackets go: the deleted ones, and what is the same as one of them."""
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
    """The parameters in a file; and what the program says of its lines, or we where it is silent.

    A line that cannot be understood is passed over. Raises DataError when the file cannot be read
    or is too large to be one.
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
            said.append(f"{path}:{number}: {key.decode()} has no value: this line is passed over")
        elif key in _PAIRS and len(rest[0].split()) != 2:
            said.append(f"{key.decode()} requires two values")
        else:
            values[key] += rest
    numbers = {key: _number(values[key][-1]) for key in _NUMBERS if values[key]}
    if numbers.get(b"DEBUG"):
        said.append(f"{path}: DEBUG is passed over: the table and the summary are all there is")
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
        raise DataError(f"more than {LARGEST_FILE:,} bytes are no parameter file", path)
    return text.split(b"\n")


def _number(value: bytes) -> int:
    """As C's atoi has it: the digits at the start, else 0."""
    digits = re.match(rb"[+-]?\d{1,18}", value)
    return int(digits[0]) if digits else 0
