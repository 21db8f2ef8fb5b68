"""Scores of translations against references (§6.1), and of trees against a treebank (Table 4)."""
