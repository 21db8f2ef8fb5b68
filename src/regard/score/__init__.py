"""Scores: of translations beside their references (§6.1), of trees beside a treebank's (Table 4)."""
