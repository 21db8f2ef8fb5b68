"""Keep the ids of words in memory: a corpus repeats its words."""

import numpy as np
import tokenizers

# Each of the two tables of `WordIds` has at most this many words, each of at most this many
# characters. Both tables together take at most about 70 MB.
_MEMO_WORDS, _MEMO_CHARACTERS = 150_000, 64


class WordIds(dict[str, bytes]):
    """A table from words to their ids; a word that is not in the table is encoded.

    The ids of a word include the space before it. A corpus repeats its words, so the table is five
    times faster than encoding lines. Ids are kept as the bytes of uint32, which are small, fast to
    join and not tracked by the garbage collector.
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
                # A word that occurs again is copied back from the older table, without encoding it.
                self._older = dict(self)
                self.clear()
            self[word] = ids
        return ids

    def _encoded(self, word: str) -> bytes:
        if word:
            ids = self._library.encode(word, add_special_tokens=False).ids
        else:  # an empty word: between two spaces, or at either end of the line
            ids = self._library.encode(" ", add_special_tokens=False).ids[:1]
        return np.array(ids, np.uint32).tobytes()
