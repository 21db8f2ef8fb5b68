"""Punctuation marks and their Penn tags: EVALB leaves words with these tags out of a comparison.

EVALB can compare a parse with the gold tree only if it leaves out the same words in both trees. It
finds these words by the tags in each tree. So a parser must give punctuation marks these tags.
"""

TAGS = frozenset({",", ":", ".", "``", "''"})
"""Tags of words that EVALB leaves out."""
MARKS = {
    **dict.fromkeys([".", "!", "?"], "."),
    **dict.fromkeys([":", ";", "--", "..."], ":"),
    **dict.fromkeys(["``", "`", "“", "‘"], "``"),
    **dict.fromkeys(["''", "”", "’"], "''"),
    ",": ",",
}
"""Words that are punctuation, with their tags."""
EITHER = frozenset({"'", "-", "–", "—", '"', ":"})
"""Words that are not always punctuation: ' may be a possessive, - a hyphen, : part of 1:2."""
