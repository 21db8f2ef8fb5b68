"""§5.1 Text: which sentence pairs to learn from, the tokenizer, and the sentences of a text."""
