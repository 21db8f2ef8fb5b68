"""§6.3 From trees to training data: sentences become sub-words, their trees become symbols.

One vocabulary serves both sides, as in translation. Sub-words are learned from words as they are
printed, such as ( and 1/2, not -LRB- and `1\\/2`, so that treebanks and raw text look alike.
Each token of a linearised tree is a symbol: an entry of the vocabulary that encodes no text.
data/pairs.py describes the files of prepared data. valid.target.txt has the validation trees, one
on each line, without traces and function tags.

The trees are read in three stages, so that any number of trees needs little memory
(validation files are held in memory): `survey` counts the trees and collects their tokens, `learn`
learns the sub-words, and `encode` writes the ids.
The gold trees, which no parser made, are read once more if some of them are drawn for validation,
and once more for their phrases if trees are recombined.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from regard.amounts import count_of
from regard.data.aligned import Progress, Stage
from regard.data.encoding import SplitCounts
from regard.data.learning import LEARNT_PAIRS
from regard.data.pairs import is_replaceable
from regard.data.prepare import Report, complete
from regard.data.tree_encoding import TREES_AT_ONCE, TreeEncoder, TreeWriter, as_text
from regard.data.tree_files import Treebank
from regard.errors import DataError, RecipeError
from regard.files.lines import refuse_unreadable, text_of_lines
from regard.files.replacing import whole_or_nothing
from regard.recipe import Recipe
from regard.text.cleaning import Verdict
from regard.text.opening import open_own_tokenizer
from regard.text.tokenizer import Tokenizer
from regard.trees.linearise import CLOSE, OPEN, linearise
from regard.trees.penn import bracketed
from regard.trees.recombining import Phrases
from regard.trees.tree import Tree

TOP = "TOP"
"""The label of a bracket around each tree that is written to be scored. With its usual parameters,
COLLINS.prm, EVALB does not count this bracket."""
MOST_COPIES = 1000
"""If a tree would have to occur more often than this in an epoch, `silver_share` is refused."""
MOST_NEW = 20
"""At most this many new trees are made from each gold tree, by exchanging phrases."""


def prepare_trees(
    trees: Sequence[Path],
    out: Path,
    recipe: Recipe,
    *,
    valid_trees: Sequence[Path] = (),
    silver: Sequence[Path] = (),
    silver_share: float | None = None,
    tokenizer: Path | None = None,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Report:
    """Write `out`, a directory of prepared data, from files of trees.

    `trees` are gold trees, which no parser made. `silver` trees, which a parser made, are added to
    the training trees. `silver_share`, above 0 and below 1, is the fraction of silver trees among
    the training trees: gold or silver trees are repeated to reach this fraction, and the report
    counts each repetition. With None, no tree is repeated.

    Without silver trees, new trees are made from the gold trees, by exchanging phrases between
    them: at most as many as data.recombined says, and at most `MOST_NEW` from each gold tree.

    Without validation trees, some of `trees` are drawn for validation, with the recipe's seed: as
    many as data.held_out says, but at most a tenth. The drawn trees, other trees with the same
    words, and trees longer than data.max_length are not trained on. Training trees that equal one
    of `valid_trees` are counted, but kept. No tree is dropped by the other rules of the data
    section, such as data.max_ratio.

    `tokenizer` is a tokenizer.json or its directory; with None, a tokenizer is learned. `progress`
    is called while the trees are read.

    Raises DataError if a file cannot be used, `out` cannot be written or replaced, validation trees
    are to be drawn from fewer than ten trees, no training tree is left, or the given `tokenizer`
    lacks a symbol of a tree; RecipeError for a vocabulary too small to learn, or a `silver_share`
    that would repeat trees too often; the errors of `open_own_tokenizer`; RegardError if `out` is
    the current directory.
    """
    for path in (*trees, *valid_trees, *silver):
        refuse_unreadable(path)
    job = _Preparation(recipe, Treebank(trees), Treebank(valid_trees), Treebank(silver), progress)
    with whole_or_nothing(out, is_replaceable) as folder:
        known = (
            None if tokenizer is None else open_own_tokenizer(tokenizer, "a parser", "leave it out")
        )
        found = job.survey()
        if known:
            _refuse_unknown(found.tokens, known)
        vocabulary = known or job.learn(found)
        vocabulary.save(folder / "tokenizer.json")
        encoder = TreeEncoder(vocabulary, recipe.task.form)
        valid = job.write_valid(folder, encoder, found)
        train = job.write_train(folder, encoder, found, silver_share)
        report = Report.of(train, valid, vocabulary)
        inputs = {"train.trees": trees, "valid.trees": valid_trees, "silver.trees": silver}
        sample = None if known else 1 / found.every
        complete(folder, recipe, report, inputs, silver_share, sample=sample)
    return report


@dataclass(frozen=True)
class _Survey:
    """The results of `_Preparation.survey`; `gold` and `silver` are numbers of trees."""

    gold: int
    silver: int
    tokens: frozenset[str]
    """All tokens of the linearised trees."""
    held_out: list[Tree]

    @property
    def every(self) -> int:
        """The number n if the tokenizer is learned from every n-th tree; 1 means from all trees."""
        return max(1, -(-(self.gold + self.silver) // LEARNT_PAIRS))


@dataclass(frozen=True)
class _Preparation:
    """Inputs of `prepare_trees`; each public method is one step of the preparation."""

    recipe: Recipe
    gold: Treebank
    valid: Treebank
    silver: Treebank
    progress: Callable[[Progress], object]

    def survey(self) -> _Survey:
        tokens: set[str] = set()
        counts = []
        for bank in (self.gold, self.silver, self.valid):
            count = 0
            for tree in self._read("survey", bank):
                count += 1
                tokens.update(linearise(tree, self.recipe.task.form))
            if bank.files and not count:
                raise DataError("has no tree: give trees in Penn bracketing", bank.files[0])
            counts.append(count)
        gold, silver, _ = counts
        return _Survey(gold, silver, frozenset(tokens), self._held_out(gold))

    def _held_out(self, count: int) -> list[Tree]:
        if self.valid.files:
            return []
        if count < 10:
            raise DataError(
                f"has {count_of(count, 'tree')}, too few to hold out a tenth for validation: give "
                "at least ten, or --valid-trees",
                self.gold.files[0],
            )
        wanted = min(self.recipe.data.held_out, count // 10)
        drawn = np.random.default_rng(self.recipe.training.seed).permutation(count)[:wanted]
        chosen = np.isin(np.arange(count), drawn).tolist()
        return list(itertools.compress(self._read("survey", self.gold), chosen))

    def learn(self, found: _Survey) -> Tokenizer:
        """Learn sub-words from every `found.every`-th sentence, and add the symbols of trees."""
        trees = itertools.chain(self._read("learn", self.gold), self._read("learn", self.silver))
        lines = (as_text(tree.words()) for tree in itertools.islice(trees, 0, None, found.every))
        wanted, symbols = self.recipe.tokenizer, _in_order(found.tokens)
        return Tokenizer.learn(lines, wanted.kind, wanted.vocabulary, symbols)

    def write_valid(self, folder: Path, encoder: TreeEncoder, found: _Survey) -> SplitCounts:
        """Write the validation trees in two forms, as ids and as text; count them."""
        trees = found.held_out or [*self._read("encode", self.valid)]
        sources = text_of_lines(as_text(tree.words()) for tree in trees)
        targets = text_of_lines(bracketed(Tree(TOP, (tree,))) for tree in trees)
        for side, text in ("source", sources), ("target", targets):
            (folder / f"valid.{side}.txt").write_text(text, encoding="utf-8", newline="\n")
        with closing(TreeWriter(folder / "valid", encoder)) as writer:
            for tree in trees:
                writer.write(tree)
        return writer.counts()

    def write_train(
        self, folder: Path, encoder: TreeEncoder, found: _Survey, share: float | None
    ) -> SplitCounts:
        """Write the training trees as ids: gold, recombined and silver ones; count them.

        `share` is the `silver_share` of `prepare_trees`. Raises RecipeError if `share` would
        repeat trees too often, and DataError if no tree is kept.
        """
        excluded = {as_text(tree.words()) for tree in found.held_out}
        gold, silver = _times(found.gold - len(found.held_out), found.silver, share)
        recombine = self._recombine(found, excluded)
        valid = frozenset(tree for tree in self.valid.trees() if tree is not None)
        with closing(TreeWriter(folder / "train", encoder, self.recipe.data, valid)) as writer:
            for bank, times in ((self.gold, gold), (self.silver, silver)):
                for number, tree in enumerate(self._read("encode", bank)):
                    copies = int((number + 1) * times) - int(number * times)
                    if as_text(tree.words()) in excluded:
                        writer.fates[Verdict.HELD_OUT] += copies
                        continue
                    writer.write(tree, copies)
                    for new in recombine(number, tree):  # none if there are silver trees
                        writer.write(new, copies)
        counts = writer.counts()
        if not counts.kept:
            raise DataError(
                "no tree is left to train on: give more trees, or raise data.max_length",
                self.gold.files[0],
            )
        return counts

    def _recombine(
        self, found: _Survey, excluded: Set[str]
    ) -> Callable[[int, Tree], Iterator[Tree]]:
        """Return a function that takes a gold tree's number and the tree, and yields new trees.

        In all, the function makes data.recombined trees or fewer, and none if there are silver
        trees. No phrase is taken from the tree of an `excluded` sentence, and no new tree has
        exactly the words of an excluded sentence.
        """
        each = 0.0 if found.silver else min(MOST_NEW, self.recipe.data.recombined / found.gold)
        if not each:
            return lambda number, tree: iter(())
        every = self._read("phrases", self.gold)
        phrases = Phrases(tree for tree in every if as_text(tree.words()) not in excluded)
        draw = random.Random(self.recipe.training.seed)

        def recombine(number: int, tree: Tree) -> Iterator[Tree]:
            count = int((number + 1) * each) - int(number * each)
            made = (phrases.recombined(tree, draw) for _ in range(count))
            return (new for new in made if new and as_text(new.words()) not in excluded)

        return recombine

    def _read(self, stage: Stage, bank: Treebank) -> Iterator[Tree]:
        """Yield the trees that have words, and report progress."""
        if not bank.files:
            return
        done, total = 0, bank.bytes

        def count(more: int) -> None:
            nonlocal done
            done += more

        number = 0
        self.progress(Progress(stage, 0, total, 0))
        for tree in bank.trees(count):
            if tree is not None:
                number += 1
                yield tree
                if number % TREES_AT_ONCE == 0:
                    self.progress(Progress(stage, done, total, number))
        self.progress(Progress(stage, total, total, number))


def _refuse_unknown(tokens: Set[str], tokenizer: Tokenizer) -> None:
    if unknown := sorted(tokens - tokenizer.symbols.keys()):
        raise DataError(
            f"the tokenizer has no symbol {unknown[0]!r}: leave --tokenizer out, to learn one from "
            "these trees"
        )


def _in_order(tokens: Set[str]) -> list[str]:
    """The tokens in the order of their ids: opening brackets, closing brackets, leaves."""
    labels = sorted(token.removeprefix(OPEN) for token in tokens if token.startswith(OPEN))
    leaves = sorted(token for token in tokens if not token.startswith((OPEN, CLOSE)))
    return [OPEN + label for label in labels] + [CLOSE + label for label in labels] + leaves


def _times(gold: int, silver: int, share: float | None) -> tuple[float, float]:
    """How often each gold and each silver tree must occur, so that the share of silver is right.

    `share` is the wanted fraction of silver trees. Without `share` or silver trees, both numbers
    are 1. Raises RecipeError for a number above
    MOST_COPIES.
    """
    if share is None or not silver:
        return 1.0, 1.0
    wanted = gold * share / (1 - share)  # number of silver trees, if each gold tree occurs once
    times = (silver / wanted, 1.0) if wanted < silver else (1.0, wanted / silver)
    if max(times) > MOST_COPIES:
        raise RecipeError(
            f"a share of {share} of {silver:,} silver trees beside {gold:,} gold ones would repeat "
            f"a tree {max(times):,.0f} times: at most {MOST_COPIES:,} times are allowed"
        )
    return times
