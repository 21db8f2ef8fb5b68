"""How regard numbers the pieces of a foreign vocabulary: <pad>, <s>, </s>, then all others."""

from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.sections import Section
from regard.text.tokenizer import MOST_ENTRIES

Specials = tuple[int, int, int]
"""The foreign ids that correspond to regard's <pad>, <s> and </s>; -1 if no id corresponds."""


class IdOrder(Section):
    """The mapping between the ids of another system, called foreign, and the ids of regard's model.

    All entries except the three special ones keep their order. For example, let the foreign ids be
    0 to 4. If <s> is 4, </s> is 0 and there is no <pad>, then `foreign_ids` is [-1, 4, 0, 1, 2, 3].
    """

    size: Annotated[int, Field(ge=1, le=MOST_ENTRIES)]
    """The number of foreign ids: the rows of the foreign model's embedding."""
    specials: Specials

    @cached_property
    def foreign_ids(self) -> list[int]:
        """For each of regard's ids, the foreign id; -1 if there is none."""
        taken = set(self.specials)
        return [*self.specials, *(i for i in range(self.size) if i not in taken)]

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """[size] For each foreign id, regard's id."""
        found = np.zeros(self.size, np.int64)
        for ours, foreign in enumerate(self.foreign_ids):
            if foreign >= 0:
                found[foreign] = ours
        return found

    def misfit(self) -> str | None:
        """The problem with `specials`, as the text of an error; None if there is no problem."""
        for special in self.specials:
            if not -1 <= special < self.size:
                return f"a special symbol has id {special} of {self.size:,} entries"
            if special >= 0 and self.specials.count(special) > 1:
                return f"two special symbols have the id {special}"
        return None if self.specials[2] >= 0 else "the vocabulary has no end of sentence"
