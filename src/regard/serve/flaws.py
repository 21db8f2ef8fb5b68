"""What goes wrong with neural translations in ways that the text alone betrays."""

from typing import Literal

Flaw = Literal["echo", "repetition", "truncation"]

COPIES, LONGEST_PERIOD = 3, 4
"""So many copies in a row, each of up to so many words, are a repetition."""
FEWEST_ECHOED = 3
"""Words that are no echo if fewer: names and numbers stay as they are."""
SHORTEST, SHARE = 10, 3
"""A sentence of so many pieces should not lose all but one in so many."""


def flaws(
    source: str, output: str, *, source_pieces: int, output_pieces: int, limit: int
) -> list[Flaw]:
    """What is wrong with this translation, if anything; `limit` is its longest length in pieces."""
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
    """Words, or the characters of a text that writes no spaces."""
    words = text.split()
    return words if len(words) > 1 else list("".join(words))


def _is_word(word: str) -> bool:
    return any(c.isalpha() for c in word)


def _repeats(text: str) -> bool:
    words = _words(text.casefold())
    # Letters come doubled and tripled, so of them more is asked than of words.
    shortest = 1 if " " in text.strip() else 2
    for period in range(shortest, LONGEST_PERIOD + 1):
        same = 0  # words in a row that are as the one a period before
        for earlier, word in zip(words, words[period:], strict=False):
            same = same + 1 if earlier == word and _is_word(word) else 0
            if same >= period * (COPIES - 1):
                return True
    return False
