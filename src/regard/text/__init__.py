"""§5.1 Text: rules for the sentence pairs to learn from, and the tokenizer."""
