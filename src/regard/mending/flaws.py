"""Detect common flaws of a translation, using only source, output and their lengths."""

import re
from collections.abc import Sequence
from typing import Literal

from regard.text.scripts import CHINESE_OR_JAPANESE

Flaw = Literal["echo", "repetition", "truncation"]
"""How an output is wrong: it equals the source, repeats the same words, or is cut short."""

COPIES, COPIES_IN_WORD, _LONGEST_PERIOD = 3, 4, 4
"""A repetition is a group of 1 to _LONGEST_PERIOD words, each with a letter in it, that comes
COPIES times in a row. A group of 2 to _LONGEST_PERIOD letters is a repetition, too, if it comes
COPIES times in a row in a text of one word or in a script without spaces. In a word of a longer
text, the group must come COPIES_IN_WORD times, because people write "hahaha"."""
FEWEST_ECHOED = 3
"""A text with fewer words than this is never an echo: it may be a name, which is not translated.
Words without a letter, such as numbers, are not counted."""
_UNSPACED = re.compile(f"[\u0e00-\u109f\u1780-\u17ff]|{CHINESE_OR_JAPANESE.pattern}")
"""Characters of Thai, Lao, Tibetan, Burmese, Khmer, Chinese and Japanese, whose words are written
without spaces."""
_STRETCH = re.compile(f"(?:{_UNSPACED.pattern})+")
SHORTEST, SHARE = 10, 3
"""If a source has at least SHORTEST pieces (sub-words and </s>), a translation with less than
1 / SHARE times as many pieces counts as truncated."""


def flaws(
    source: str, output: str, *, source_pieces: int, output_pieces: int, limit: int | None
) -> list[Flaw]:
    """The flaws of a translation; `limit` is the most pieces that the search allows an output.

    `source_pieces` and `output_pieces` are numbers of pieces, </s> included. An output with `limit`
    or more pieces counts as truncated. `limit` is None if the source was translated in parts, each
    of which has a limit of its own. A repetition is no flaw if the source has a repetition, too.
    """
    before, after = _divided(source), _divided(output)
    found: list[Flaw] = []
    if before == after and sum(map(_has_letter, before)) >= FEWEST_ECHOED:
        found.append("echo")
    if _repeats(output) and not _repeats(source):
        found.append("repetition")
    short = source_pieces >= SHORTEST and output_pieces * SHARE < source_pieces
    if short or (limit is not None and output_pieces >= limit):
        found.append("truncation")
    return found


def _divided(text: str) -> list[str]:
    """The words of a text; each character that `_UNSPACED` matches counts as a word."""
    return _UNSPACED.sub(r" \g<0> ", text).split()


def _has_letter(word: str) -> bool:
    return any(c.isalpha() for c in word)


def _repeats(text: str) -> bool:
    """Whether a group of words or of letters comes again and again in the text (see `COPIES`)."""
    folded = text.casefold()
    words, stretches = folded.split(), _STRETCH.findall(folded)
    in_word = COPIES if len(words) == 1 else COPIES_IN_WORD
    # A single letter may occur three times in a row, so a group of letters has at least two.
    return (
        _come_again(words, 1, COPIES)
        or any(_come_again(stretch, 2, COPIES) for stretch in stretches)
        or any(_come_again(word, 2, in_word) for word in words)
    )


def _come_again(words: Sequence[str], shortest: int, copies: int) -> bool:
    """Whether a group of words, each with a letter in it, comes `copies` times in a row.

    The group has `shortest` to _LONGEST_PERIOD words. `words` may be a string: then each character
    counts as a word.
    """
    for period in range(shortest, _LONGEST_PERIOD + 1):
        same = 0  # words in a row that have a letter, and equal the word `period` words earlier
        for earlier, word in zip(words, words[period:], strict=False):
            same = same + 1 if earlier == word and _has_letter(word) else 0
            if same >= period * (copies - 1):
                return True
    return False
