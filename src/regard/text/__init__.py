"""Text (§5.1): files of lines, cleaning, and sub-word tokenizers."""
