"""Punctuation marks and their Penn tags, by which EVALB leaves words out of the comparison.

A tree whose tags leave out other words than the treebank's cannot be compared, so a parser must
know them.
"""

TAGS = frozenset({",", ":", ".", "``", "''"})
"""Of words that are left out."""
MARKS = {
    **dict.fromkeys([".", "!", "?"], "."),
    **dict.fromkeys([":", ";", "--", "..."], ":"),
    **dict.fromkeys(["``", "`", "“", "‘"], "``"),
    **dict.fromkeys(["''", "”", "’"], "''"),
    ",": ",",
}
"""Words that are punctuation, with their tags."""
EITHER = frozenset({"'", "-", "–", "—", '"', ":"})
"""Words, of these and others, that may be no punctuation: a possessive, a hyphen, 1:2."""
