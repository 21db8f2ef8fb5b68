"""Tokenizers of other systems, with which imported models read and write text."""

from regard.text.foreign.library import LibraryTokenizer as LibraryTokenizer
from regard.text.foreign.moses import MosesTokenizer as MosesTokenizer
from regard.text.foreign.sentence_pieces import SentencePieceTokenizer as SentencePieceTokenizer
