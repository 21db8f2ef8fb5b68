"""Validation during training: perplexity without smoothing, and BLEU of real translations or, of
a parser, F1 of real trees.

Handed to `train` as a callable, so that the loop knows neither search nor scores.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard.arithmetic.choose import for_validation
from regard.data.batches import Batches, BatchShare
from regard.data.pairs import Pairs
from regard.data.treebank import TOP
from regard.errors import DataError
from regard.files.lines import read_lines
from regard.loss import perplexity
from regard.machine.processes import ALONE, Processes
from regard.parsing import Parser
from regard.recipe import ModelRecipe, Recipe
from regard.score.bleu import bleu, refuse_missing
from regard.score.brackets import score_brackets
from regard.score.evalb.parameters import COLLINS
from regard.score.evalb.report import LengthSummary
from regard.steps import batch_loss
from regard.text.tokenizer import Tokenizer
from regard.training import Validate
from regard.transformer import Transformer
from regard.translation import Translator
from regard.trees.penn import bracketed, read_trees
from regard.trees.tree import Tree

SAMPLES = 2
"""Sentences shown with their translations at each validation."""


def validator(data: Path, recipe: Recipe, processes: Processes = ALONE) -> Validate:
    """A callable that measures a model on the validation set of prepared data.

    Of several processes each does its share. It returns `loss` (plain, nats per sub-word),
    `perplexity`, `bleu` (cased, on the first `validate_sentences`; absent where that is 0) and
    `samples`: source, output, reference. Of a parser it returns `f1` instead of `bleu`: EVALB's, of
    all lengths, by COLLINS.prm, the bracket around a tree not counted.
    Raises DataError where the model will not have positions for a sentence, MissingExtra where
    BLEU's tokenizer is not installed.
    """
    refuse_missing(recipe.training.bleu_tokenizer)
    pairs, tokenizer = Pairs.open(data, "valid"), Tokenizer.load(data / "tokenizer.json")
    _refuse_beyond_positions(pairs, recipe.model, data)
    wanted = recipe.training.validate_sentences
    sources = list(read_lines(data / "valid.source.txt"))[:wanted]
    references = list(read_lines(data / "valid.target.txt"))[:wanted]
    name, decoded, measured = (
        ("f1", _parsed, _f1) if recipe.task.output == "trees" else ("bleu", _translated, _bleu)
    )

    def measured_now(model: Transformer) -> dict[str, Any]:
        loss = plain_loss(model, pairs, recipe, processes)
        result: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss, 1)}
        if sources:
            share = slice(processes.rank, None, processes.count)
            mine = decoded(model, tokenizer, recipe, sources[share], references[share])
            parts = processes.all(mine)
            outputs = [parts[i % len(parts)][i // len(parts)] for i in range(len(sources))]
            result[name] = measured(outputs, references, recipe)
            shown = zip(sources, outputs, references, strict=True)
            result["samples"] = [
                dict(zip(("source", "output", "reference"), s, strict=True)) for s in shown
            ][:SAMPLES]
        return result

    def validate(model: Transformer) -> dict[str, Any]:
        weight = model.embedding.tokens.weight
        model.eval()
        with model.computing_by(for_validation(recipe.training, weight.device, weight.dtype)):
            result = measured_now(model)
        model.train()
        return result

    return validate


def _translated(
    model: Transformer, tokenizer: Tokenizer, recipe: Recipe, sources: list[str], _: list[str]
) -> list[str]:
    translator = Translator(model, tokenizer, recipe.search, recipe.data.max_length)
    return translator.translate(sources, split=True)


def _bleu(outputs: list[str], references: list[str], recipe: Recipe) -> float:
    return bleu(outputs, [references], recipe.training.bleu_tokenizer)


def _parsed(
    model: Transformer, tokenizer: Tokenizer, recipe: Recipe, _: list[str], gold: list[str]
) -> list[str]:
    """Trees over the words of the gold ones, each in a bracket that EVALB passes over."""
    trees = read_trees(gold, "valid.target.txt")
    found = Parser(model, tokenizer, recipe).parse(tree.words() for tree in trees)
    return [bracketed(Tree(TOP, (tree,))) for tree in found]


def _f1(outputs: list[str], references: list[str], _: Recipe) -> float:
    found, gold = (
        (tree.children[0] for tree in read_trees(lines, "trees")) for lines in (outputs, references)
    )
    f1 = compare_trees(found, gold).f1
    return 0.0 if math.isnan(f1) else f1


def compare_trees(found: Iterable[Tree], gold: Iterable[Tree]) -> LengthSummary:
    """EVALB's figures of all lengths, by COLLINS.prm; the root of each tree is not the bracket
    around it.
    """
    found, gold = list(found), list(gold)
    parameters = replace(COLLINS, max_errors=len(gold))
    return score_brackets(map(_for_evalb, gold), map(_for_evalb, found), parameters).all


def _for_evalb(tree: Tree) -> bytes:
    """In a bracket that it passes over, and without blanks in words, which it cannot read."""
    return bracketed(Tree(TOP, (tree.fold(_without_blanks),))).encode()


def _without_blanks(node: Tree, inside: list[Tree]) -> Tree:
    word = None if node.word is None else node.word.replace(" ", "_")
    return Tree(node.label, tuple(inside), word)


def _refuse_beyond_positions(pairs: Pairs, recipe: ModelRecipe, data: Path) -> None:
    """Training drops what is too long, validation does not: say so now, not after hours."""
    for side, lengths in (("source", pairs.source_lengths), ("target", pairs.target_lengths)):
        if recipe.positions == "learned" and lengths.max() > recipe.max_positions:
            raise DataError(
                f"{lengths.max()} pieces, and the model learns model.max_positions = "
                f"{recipe.max_positions}: raise it, or prepare the data without this sentence",
                data / f"valid.{side}.txt",
                int(lengths.argmax()) + 1,
            )


@torch.no_grad()
def plain_loss(
    model: Transformer, pairs: Pairs, recipe: Recipe, processes: Processes = ALONE
) -> float:
    """Cross-entropy without smoothing per target sub-word, in nats, over all pairs."""
    device = model.embedding.tokens.weight.device
    # Whatever is to be validated on fits: a batch has room for the longest sentence, even alone.
    limits = {
        "source_tokens": max(recipe.data.source_tokens, int(pairs.source_lengths.max())),
        "target_tokens": max(recipe.data.target_tokens, int(pairs.target_lengths.max())),
    }
    rules = recipe.data.model_copy(update=limits)
    share = BatchShare(processes.rank, processes.count)
    batches = Batches(pairs, rules, seed=0, layout="grouped", share=share)
    total = torch.zeros(2, dtype=torch.float64, device=device)  # loss, tokens
    for batch in batches.rest_of_epoch():
        total[0] += batch_loss(model, batch.to(device), smoothing=0.0)[1]
        total[1] += batch.target_tokens
    processes.add_up(total)
    return float(total[0] / total[1])
