"""Detect common flaws of neural translation from the text alone."""

from typing import Literal

Flaw = Literal["echo", "repetition", "truncation"]
"""The output equals the source, repeats the same words, or is cut short."""

COPIES, _LONGEST_PERIOD = 3, 4
"""A repetition: the same words COPIES times in a row, at most _LONGEST_PERIOD words each time."""
FEWEST_ECHOED = 3
"""Fewest words of an echo: a shorter text may be a name, which stays as it is."""
SHORTEST, SHARE = 10, 3
"""The translation of at least 10 pieces is truncated if it has less than a third as many."""


def flaws(
    source: str, output: str, *, source_pieces: int, output_pieces: int, limit: int
) -> list[Flaw]:
    """The flaws of a translation; `limit` is the most pieces that a search allows in an output."""
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
    """Whether a few words, or letters of a text without spaces, come COPIES times in a row."""
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
