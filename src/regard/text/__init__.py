"""§5.1 Tokenizers, rules that choose sentence pairs, and the division of a text into sentences."""
