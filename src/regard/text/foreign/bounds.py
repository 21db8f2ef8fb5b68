"""Bounds of a stranger's tokenizer.json: its rules must end, and not lengthen a text for ever."""

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.text.foreign.patterns import surely_ends

MOST_GROWTH = 10_000
"""Times by which all rules together may lengthen a text."""
_MOST_RULES = 1000


def refuse_endless(content: dict[str, Any], path: Path) -> None:
    """Raise ModelError if encoding or decoding a text may run for ever, or fill the memory."""
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
            if growth > MOST_GROWTH or count > _MOST_RULES:
                raise ModelError(
                    f"{path}: its {part} may lengthen a text more than {MOST_GROWTH:,} times, or "
                    f"has more than {_MOST_RULES:,} rules: do not use this tokenizer"
                )


def _rules(value: Any) -> Iterator[dict[str, Any]]:
    """All rules in a part of the file, however they are nested."""
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
    """By how much a rule can multiply the length of a text."""
    growth = 1
    for key in ("content", "prepend", "replacement"):  # for an expression, it may be everywhere
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
    """Bytes of the longest text that a table of SentencePiece puts for characters.

    The table begins with the size of an index and the index; then come texts, each with a zero
    byte at its end.
    """
    texts = charsmap[4 + int.from_bytes(charsmap[:4], "little") :]
    return max(1, *map(len, texts.split(b"\0"))) if texts else 1
