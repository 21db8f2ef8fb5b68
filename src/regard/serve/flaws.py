"""Detect common flaws of neural translation from the text alone."""

from typing import Literal

Flaw = Literal["echo", "repetition", "truncation"]
"""Not translated; the same words again and again; cut short."""

COPIES, _LONGEST_PERIOD = 3, 4
"""A repetition is this many copies in a row, each of at most this many words."""
FEWEST_ECHOED = 3
"""A text of fewer words is not an echo: names and numbers are not translated."""
SHORTEST, SHARE = 10, 3
"""A source of at least 10 pieces whose translation has under a third as many is truncated."""


def flaws(
    source: str, output: str, *, source_pieces: int, output_pieces: int, limit: int
) -> list[Flaw]:
    """The flaws found in a translation; `limit` is the longest output allowed, in pieces."""
    before, after = _words(source), _words(output)
    found: list[Flaw] = []
    if before == after and sum(map(_is_word, before)) >= FEWEST_ECHOED:
        found.append("echo")
    if _repeats(output) and not _repeats(source):
        found.append("repetition")
    short = source_pieces >= SHORTEST and output_pieces * SHARE < source_pieces
    if short or output_pieces >= limit:
        found.append("truncation")
    return found


def _words(text: str) -> list[str]:
    """The words of a text, or its characters if it has no spaces."""
    words = text.split()
    return words if len(words) > 1 else list("".join(words))


def _is_word(word: str) -> bool:
    return any(c.isalpha() for c in word)


def _repeats(text: str) -> bool:
    """Whether the text has the same few words, or letters, COPIES times in a row."""
    words = _words(text.casefold())
    # A single letter may well be tripled, so a repeated group of letters has at least two.
    shortest = 1 if " " in text.strip() else 2
    for period in range(shortest, _LONGEST_PERIOD + 1):
        same = 0  # successive words that equal the word one period earlier
        for earlier, word in zip(words, words[period:], strict=False):
            same = same + 1 if earlier == word and _is_word(word) else 0
            if same >= period * (COPIES - 1):
                return True
    return False
