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
"""Words that may be punctuation or not: a possessive, a hyphen, a minus, a ratio."""
