"""§5.1 The words of a text, and how often each occurs."""

from collections import Counter
from collections.abc import Iterable

from tokenizers import pre_tokenizers

from regard.errors import DataError

MOST_WORDS = 2_000_000
"""The most distinct words that are counted at the same time. If there are more, the rarer half is
dropped; of equally rare words, those that came last."""


def count_words(lines: Iterable[str], longest: int) -> dict[str, int]:
    """The count of each word; the words are written with a printable character for each byte.

    The characters are those of GPT-2. A space is put before each line, and lines are cut into words
    as in encoding: before each space, then by GPT-2's pattern, then into parts of at most `longest`
    bytes.
    """
    counts: Counter[str] = Counter()
    for line in lines:
        counts.update(line.split(" "))
        # Some words that occur once must stay: without blanks, nearly each line is such a word.
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
    """Raise DataError for a lone surrogate, and name its place, `where` or the number of the line.

    Lines are counted from `first`.
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
