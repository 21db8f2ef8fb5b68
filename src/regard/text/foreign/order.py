"""Ids of a foreign vocabulary and ours: 0 = <pad>, 1 = <s>, 2 = </s>, then the others as before."""

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.sections import Section
from regard.text.tokenizer import MOST_ENTRIES

Specials = tuple[int, int, int]
"""The foreign ids of what is <pad>, <s> and </s> here; -1 for one that has no counterpart."""


class IdOrder(Section):
    """Where the entries of a foreign vocabulary are in ours.

    All entries but the three special ones keep their order: with 5 foreign entries of which 4 is
    <s> and 0 is </s>, and none is <pad>, ours are [-1, 4, 0, 1, 2, 3].
    """

    size: Annotated[int, Field(ge=1, le=MOST_ENTRIES)]
    """Entries of the foreign vocabulary: rows of the foreign model's embedding."""
    specials: Specials

    @cached_property
    def foreign_ids(self) -> list[int]:
        """For each of our ids, the foreign one."""
        taken = set(self.specials)
        return [*self.specials, *(i for i in range(self.size) if i not in taken)]

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """[size] For each foreign id, ours."""
        found = np.zeros(self.size, np.int64)
        for ours, foreign in enumerate(self.foreign_ids):
            if foreign >= 0:
                found[foreign] = ours
        return found

    def misfit(self) -> str | None:
        """The reason why these are not ids of a vocabulary, if there is one."""
        for special in self.specials:
            if not -1 <= special < self.size:
                return f"a special symbol has id {special} of {self.size:,} entries"
        return None if self.specials[2] >= 0 else "the vocabulary has no end of sentence"
