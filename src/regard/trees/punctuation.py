"""Punctuation marks and their Penn tags, by which EVALB leaves out words.

With its usual settings, COLLINS.prm, the scorer EVALB leaves out words with these tags. EVALB can
compare a parse with the gold tree only if EVALB leaves out the same words in both trees. So a
parser must give punctuation marks the tags in `TAGS`.
"""

TAGS = frozenset({",", ":", ".", "``", "''"})
"""Tags of words that EVALB leaves out with COLLINS.prm."""
MARKS = {
    **dict.fromkeys([".", "!", "?"], "."),
    **dict.fromkeys([":", ";", "--", "..."], ":"),
    **dict.fromkeys(["``", "`", "“", "‘"], "``"),
    **dict.fromkeys(["''", "”", "’"], "''"),
    ",": ",",
}
"""For each word that is a punctuation mark, its tag."""
EITHER = frozenset({"'", "-", "–", "—", '"', ":"})
"""Words that are punctuation in some sentences but not in others: for example, ' may also mark a
possessive, - may join two words, and : may stand between two numbers."""
