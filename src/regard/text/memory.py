"""Keep the ids of words in memory: a corpus repeats its words."""

import numpy as np
import tokenizers

# `WordIds` has a table of recent words and a table of older words. Each table has at most
# _MEMO_WORDS words, each of at most _MEMO_CHARACTERS characters. Both tables together take about
# 45 MB if words are short, and up to 135 MB if they are long.
_MEMO_WORDS, _MEMO_CHARACTERS = 150_000, 64


class WordIds(dict[str, bytes]):
    """A table from words to their ids; a word that is not in the table is encoded.

    A word is a part of a line between spaces; it is encoded with a space before it. A corpus
    repeats its words, so looking words up is five times faster than encoding lines. Ids are stored
    as bytes, four for each id (uint32). Bytes are small, fast to join and not tracked by the
    garbage collector.
    """

    def __init__(self, library: tokenizers.Tokenizer):
        super().__init__()
        self._library = library
        self._older: dict[str, bytes] = {}

    def __missing__(self, word: str) -> bytes:
        ids = self._older.get(word)
        if ids is None:
            ids = self._encoded(word)
        if len(word) <= _MEMO_CHARACTERS:
            if len(self) >= _MEMO_WORDS:
                # The table of recent words is full. A copy of it becomes the table of older words,
                # and the table of recent words is emptied. If an older word occurs again, its ids
                # are copied into the table of recent words.
                self._older = dict(self)
                self.clear()
            self[word] = ids
        return ids

    def _encoded(self, word: str) -> bytes:
        if word:
            ids = self._library.encode(word, add_special_tokens=False).ids
        else:  # the word is empty: it is between two spaces, or at an end of the line
            ids = self._library.encode(" ", add_special_tokens=False).ids[:1]
        return np.array(ids, np.uint32).tobytes()
