"""Scores: of translations beside references (§6.1), of trees beside a treebank's (Table 4)."""
