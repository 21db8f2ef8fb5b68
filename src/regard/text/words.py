"""§5.1 The words of a text, and how often each occurs."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import pre_tokenizers

from regard.errors import DataError

MOST_WORDS = 2_000_000
"""At most this many distinct words are counted at the same time. If there are more, the
MOST_WORDS / 2 most frequent ones are kept. Among equally frequent words, the first are kept."""


def count_words(lines: Iterable[str], longest: int) -> dict[str, int]:
    """A map from words to their counts; if there are more than MOST_WORDS, rare ones are left out.

    A space is put before each line, and lines are cut into words as in encoding: before each space,
    then by GPT-2's pattern, then into parts of at most `longest` bytes. As in GPT-2, each byte of a
    word is written as one printable character.
    """
    counts: Counter[str] = Counter()
    for line in filter(None, lines):  # an empty line has no words
        counts.update(line.split(" "))
        # Words that occur only once are kept as long as there is room: in a text without blanks,
        # nearly every line is one word that occurs only once.
        if len(counts) > MOST_WORDS:
            counts = Counter(dict(counts.most_common()[: MOST_WORDS // 2]))
    cut = pre_tokenizers.ByteLevel(add_prefix_space=False).pre_tokenize_str
    words: Counter[str] = Counter()
    for chunk, n in counts.items():
        for word, _ in cut(f" {chunk}"):
            for begin in range(0, len(word), longest):
                words[word[begin : begin + longest]] += n
    return words


def refuse_surrogates(lines: Iterable[str], first: int = 1, where: str | None = None) -> None:
    """Raise DataError if a line has a lone surrogate, which is not a character.

    The message names the place: `where` if it is given, otherwise the number of the line. The first
    line has the number `first`.
    """
    for number, line in enumerate(lines, first):
        try:
            line.encode()
        except UnicodeEncodeError as error:
            found = ord(line[error.start])
            raise DataError(
                f"{where or f'line {number}'} has a lone surrogate (U+{found:04X}) at character "
                f"{error.start + 1}: it is not Unicode text; decode it as UTF-8 or UTF-16 first"
            ) from None
