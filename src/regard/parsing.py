"""§6.3 English constituency parsing: a parser writes the tree of a sentence.

The encoder reads the sub-words of the sentence, the decoder writes the tree as symbols, and the
search considers only trees over exactly the words of the sentence (`wellformed`).
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from regard.data.rows import Rows
from regard.data.tree_encoding import as_text
from regard.decoding import Decoding
from regard.division import Found
from regard.encoder_decoder import EncoderDecoder
from regard.errors import DataError, MissingExtra, ModelError
from regard.hypotheses import Hypothesis
from regard.precision import open_to_decode
from regard.recipe import Recipe
from regard.search import search
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import EOS
from regard.text.words import refuse_surrogates
from regard.trees.linearise import NORMALISED, delinearise
from regard.trees.penn import bracketed
from regard.trees.punctuation import MARKS
from regard.trees.tree import Tree
from regard.wellformed import Alphabet, ParserInput, WellFormed, kind_of

LONGEST = 2048
"""A sentence of more pieces than this, </s> included, is parsed in parts; learned positions may
lower the limit. A sentence that is longer than all in training is parsed less accurately."""

Split = Callable[[str], Sequence[str]]
"""A function that splits a line into words."""


@dataclass(frozen=True)
class Parse:
    """The tree of a sentence, with its score."""

    tree: Tree
    """The tree without an outer, unlabelled bracket; its leaves are the words as given."""
    score: float
    """log p (natural logarithm) divided by the length penalty, ((5 + length) / 6)^alpha in §6.1; if
    the sentence was parsed in parts, the sum of the parts' scores."""
    confidence: float
    """log p of the tree divided by the number of its words."""


def load(directory: str | Path, *, precision: str = "fp32", exact: bool | None = None) -> Parser:
    """Open a model directory for parsing; raises ModelError if it holds no parser.

    `precision`, `exact` and the other errors are as in `translation.load`.
    """
    model, exact = open_to_decode(directory, precision, exact)
    if model.recipe.task.output != "trees":
        raise ModelError(f"{directory}: is not a parser: use regard translate, or name a parser")
    return Parser(model.network, model.tokenizer, model.recipe, exact=exact)


class Parser(Decoding):
    """A model that writes trees, with its tokenizer and search; for one thread at a time."""

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizer: AnyTokenizer,
        recipe: Recipe,
        *,
        exact: bool | None = False,
    ):
        """Make a parser from an opened model; `exact` means the same as in `Decoding`.

        Raises ModelError if the tokenizer has no symbols of trees.
        """
        super().__init__(model, recipe.search, exact)
        self.tokenizer, self.form = tokenizer, recipe.task.form
        # Even a flat tree may need two more positions than its sentence, for (S and )S.
        self.longest = min(LONGEST, model.longest - 2)
        self.alphabet = Alphabet(tokenizer.symbols, model.device)
        self._trees = WellFormed(model, self.alphabet)

    def parse(self, sentences: Iterable[Sequence[str]]) -> list[Tree]:
        """Parse sentences, each a list of words; return the best tree of each.

        Raises DataError for a sentence without words, and the errors of `stream`.
        """
        trees = []
        for number, best in enumerate(self.stream(sentences), 1):
            if not best:
                raise DataError("has no words, and so no tree: leave it out", "sentence", number)
            trees.append(best[0].tree)
        return trees

    def stream(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        n_best: int = 1,
        window: int | None = None,
    ) -> Iterator[list[Parse]]:
        """Yield up to `n_best` trees of each sentence, best first.

        `window` sentences are decoded together; None means as many as suit the device
        (`Arithmetic.window`). A sentence without words has no trees. A sentence of more than
        `longest` pieces, </s> included, is parsed in parts, whose trees become children of one
        phrase. If a single word has more pieces than this, its last pieces are not read.

        Raises TypeError if a sentence is no list of str; DataError for a lone surrogate, which is
        no character, or for a word that is empty or has a blank; ValueError for a `window` below 1;
        RecipeError if `n_best` is not between 1 and the beam; and the errors of
        `Decoding.hypotheses`.
        """
        window = self.window_of(window)
        every = enumerate(sentences, 1)
        while some := list(itertools.islice(every, window)):
            for number, words in some:
                _refuse_what_is_no_word(words, number)
            cuts = [self._parts(words) for _, words in some]
            found = self._parsed([part for cut in cuts for part in cut], n_best)
            for cut in cuts:
                best = itertools.islice(found, len(cut))
                yield [_joined(one) for one in zip(*best, strict=False)]

    def _parts(self, words: Sequence[str]) -> list[tuple[Sequence[str], list[int]]]:
        """Divide a sentence in halves until each part is short enough to parse.

        Returns the words and the pieces of each part, or [] for no words. If a single word has too
        many pieces, the last pieces of this word are left out.
        """
        [pieces] = self.tokenizer.encode([as_text(words)])
        if len(words) < 2 or len(pieces) < self.longest:
            return [(words, [*pieces[: self.longest - 1], EOS])] if words else []
        half = len(words) // 2
        return self._parts(words[:half]) + self._parts(words[half:])

    def _parsed(
        self, parts: Sequence[tuple[Sequence[str], list[int]]], n_best: int
    ) -> Iterator[list[Parse]]:
        """Parse sentences, given as their words and pieces; yield up to `n_best` parses of each."""
        sentences, sources = [words for words, _ in parts], [pieces for _, pieces in parts]
        counts = torch.tensor([len(words) for words in sentences])

        def found(rows: Rows, limits: Tensor, batch: list[int]) -> Found:
            kinds = [torch.tensor(list(map(kind_of, reversed(sentences[i])))) for i in batch]
            words = counts[batch].to(limits.device)
            limits = torch.maximum(limits, words + 3)  # room for (S, a leaf per word, )S and </s>
            inputs = ParserInput(rows, words, pad_sequence(kinds, True).to(limits.device), limits)
            return search(self._trees, inputs, limits, self.recipe, by=self.model.by, n_best=n_best)

        for words, best in zip(sentences, self.hypotheses(sources, found), strict=True):
            yield [self._parse(one, words) for one in best]

    def _parse(self, found: Hypothesis, words: Sequence[str]) -> Parse:
        names = [self.alphabet.names[token] for token in found.tokens]
        tags = None if self.form == "tags" else [MARKS.get(word, NORMALISED) for word in words]
        tree = delinearise(names, words, tags)
        return Parse(tree, found.score, found.log_probability / len(words))


def _refuse_what_is_no_word(words: Sequence[str], number: int) -> None:
    """Raise an error if no bracketed tree can have these words of the sentence `number`.

    Raises TypeError if `words` is not a list of str; DataError for a lone surrogate, and for a word
    that is empty or has a blank.
    """
    if isinstance(words, str):
        raise TypeError("expected a list of words, not a str: give text.split()")
    try:
        text = " ".join(words)
    except TypeError:
        raise TypeError(f"sentence:{number}: expected a list of words, not {words!r:.80}") from None
    refuse_surrogates([text], number)
    for place, word in enumerate(words, 1):
        if by_blanks(word) != [word]:
            problem = f"word {place} is empty or has a blank, so no bracketed tree can have it"
            raise DataError(problem, "sentence", number)


def _joined(parts: Sequence[Parse]) -> Parse:
    """Join the parses of a sentence's parts under one root; return a single part as it is.

    The root has the label of the first part that is a phrase or, if each part is a single word, the
    label of the first part. The scores of the parts are added up. The confidence is log p of all
    parts, divided by the number of all words.
    """
    if len(parts) == 1:
        return parts[0]
    trees = tuple(part.tree for part in parts)
    words = [len(tree.words()) for tree in trees]
    label = next((tree.label for tree in trees if tree.word is None), trees[0].label)
    score = sum(part.score for part in parts)
    log_probability = sum(part.confidence * n for part, n in zip(parts, words, strict=True))
    return Parse(Tree(label, trees), score, log_probability / sum(words))


def by_blanks(line: str) -> list[str]:
    """Split a tokenised line into words at ASCII white space, as bracketed trees are split."""
    return re.findall(r"[^ \t\r\n\f\v]+", line)


def treebank_words() -> Split:
    """A function that splits raw text as the Penn Treebank does: "don't" becomes "do" and "n't".

    Raises MissingExtra if NLTK is not installed.
    """
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError:
        raise MissingExtra("parsing raw text", "parse") from None
    cut = NLTKWordTokenizer().tokenize
    return lambda line: [word for part in cut(line) for word in by_blanks(part)]


def in_treebank(tree: Tree) -> Tree:
    """Put an outer, unlabelled bracket around a tree, as in treebanks: ( (S ...))."""
    return Tree("", (tree,))


def treebank_line(tree: Tree) -> str:
    """The tree as one line of a treebank, with the outer bracket."""
    return bracketed(in_treebank(tree))


def is_confident(parse: Parse, threshold: float) -> bool:
    """Whether a tree may be trained on: its confidence is finite and at least `threshold`."""
    return math.isfinite(parse.confidence) and parse.confidence >= threshold
