"""Refuse a tokenizer whose rules might run for ever, or lengthen a text until memory is full.

The check is needed because anybody may have made the files of a tokenizer.
"""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.text.foreign.patterns import surely_ends

MOST_TIMES = 10_000
"""A tokenizer is refused if one of its steps, such as its normalizer, may make a text longer by a
larger factor than this."""
_MOST_RULES = 1000


def refuse_endless(content: dict[str, Any], path: Path) -> None:
    """Raise ModelError if encoding or decoding a text may run for ever, or fill the memory.

    `content` is the content of the library's tokenizer.json. A tokenizer with more than _MOST_RULES
    rules in its normalizer, its pre_tokenizer or its decoder is refused, too.
    """
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        growth, count = 1, 0
        for rule in _rules(content.get(part)):
            expression = _expression(rule)
            if expression is not None and not surely_ends(expression):
                raise ModelError(
                    f"{path}: its {part} has the regular expression {expression!r:.100}, which may "
                    "run for ever: write it with fewer repetitions, or convert the tokenizer to "
                    "another kind"
                )
            growth, count = growth * _growth(rule), count + 1
            if growth > MOST_TIMES or count > _MOST_RULES:
                raise ModelError(
                    f"{path}: its {part} may lengthen a text more than {MOST_TIMES:,} times, or "
                    f"has more than {_MOST_RULES:,} rules: do not use this tokenizer"
                )


def _rules(value: Any) -> Iterator[dict[str, Any]]:
    """All rules in a part of a tokenizer's file, however they are nested."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _expression(rule: dict[str, Any]) -> str | None:
    found = rule.get("Regex")
    return found if isinstance(found, str) else None


def _growth(rule: dict[str, Any]) -> int:
    """About how many times longer a rule can make a text.

    The factor follows from the length of the texts that the rule writes. A rule that writes no such
    text counts as 1. So does Unicode normalization, because it makes only few characters much
    longer.
    """
    growth = 1
    # A rule writes `text` in place of a string of `least` characters. If the rule does not name the
    # string, `least` is 0. Such a rule may have a regular expression that matches the empty string,
    # and may then insert `text` before every character, and at the end.
    for key in ("content", "prepend", "replacement"):
        if isinstance(text := rule.get(key), str):
            pattern = rule.get("pattern")
            string = pattern.get("String") if isinstance(pattern, dict) else None
            least = len(string) if isinstance(string, str) else 0
            growth *= max(1, -(-len(text) // least) if least else 1 + len(text))
    if isinstance(text := rule.get("precompiled_charsmap"), str):
        growth *= longest_replacement(_decoded(text))
    return growth


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError):
        return b""


def longest_replacement(charsmap: bytes) -> int:
    """The length, in bytes, of the longest text in SentencePiece's table of replacements.

    The table replaces characters by texts. Four bytes at its beginning give the size of an index;
    the index follows, and then the texts, each with a zero byte at its end. If there is no text,
    the result is 1.
    """
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :]
    return max(1, *map(len, texts.split(b"\0"))) if texts else 1


def refuse_growth(model: bytes, path: Path) -> None:
    """Raise ModelError if a SentencePiece model may lengthen a text more than MOST_TIMES times.

    The model is a message of Protocol Buffers. Its fields 3 and 5 have the tables that replace
    characters in encoding and decoding; field 2 has the text that stands for an unknown piece. Also
    raises ModelError if these fields cannot be read.
    """
    try:
        growth = max(map(len, _values(model, 2, 44)), default=0)
        for number in (3, 5):
            growth = max([growth, *map(longest_replacement, _values(model, number, 2))])
    except IndexError:
        raise ModelError(f"{path}: damaged, or not a SentencePiece model") from None
    if growth > MOST_TIMES:
        raise ModelError(
            f"{path}: it may lengthen a text {growth:,} times, and {MOST_TIMES:,} times are "
            "allowed: do not use this tokenizer"
        )


def _values(message: bytes, *numbers: int) -> Iterator[bytes]:
    """Yield the values of a field of a message; `numbers` 2, 44 mean field 44 inside field 2.

    Raises IndexError if the message ends within a number, or has a group or an unknown type.
    """
    first, *inside = numbers
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        kind = key & 7
        if kind == 0:
            _, place = _varint(message, place)
        elif kind in (1, 5):
            place += 8 if kind == 1 else 4
        elif kind == 2:
            size, place = _varint(message, place)
            value, place = message[place : place + size], place + size
            if key >> 3 == first:
                yield from _values(value, *inside) if inside else [value]
        else:  # a group of Protocol Buffers or an unknown type; SentencePiece's models have none
            raise IndexError


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """Read a number from `place` on; return the number and the place after its last byte.

    A byte has seven bits of the number; the lowest bits come first. Raises IndexError if the
    message ends within the number.
    """
    found = shift = 0
    while True:
        byte = message[place]
        found, place, shift = found | (byte & 127) << shift, place + 1, shift + 7
        if byte < 128 or shift > 63:
            return found, place
