"""§5.1 Text: which sentence pairs are learned from, and the sub-words they are made of."""
