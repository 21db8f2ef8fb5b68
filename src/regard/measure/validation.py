"""Validation during training: perplexity, accuracy, and BLEU of translations or F1 of trees.

`train` gets the validation as a callable, so that the training loop depends neither on search nor
on scores.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.arithmetic.choose import for_validation
from regard.data.batches import Batch, Batches, BatchShare
from regard.data.pairs import Pairs
from regard.data.treebank import TOP
from regard.encoder_decoder import EncoderDecoder
from regard.errors import DataError, TrainingError
from regard.files.lines import read_lines
from regard.loss import perplexity
from regard.machine.devices import free_memory, is_out_of_memory
from regard.machine.processes import ALONE, Processes
from regard.parsing import Parser
from regard.recipe import ModelRecipe, Recipe
from regard.score.bleu import bleu, refuse_missing
from regard.score.brackets import score_brackets
from regard.score.evalb.parameters import COLLINS
from regard.score.evalb.report import LengthSummary
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer
from regard.training import Validate
from regard.translation import Translator
from regard.trees.penn import bracketed, read_trees, with_tags_of, without_blanks
from regard.trees.tree import Tree

LABELS_AT_ONCE = 1024
"""The accuracy is computed from the logits of at most this many target positions at once."""
SAMPLES = 2
"""Number of sentences that each validation shows with their translations."""


def validator(data: Path, recipe: Recipe, processes: Processes = ALONE) -> Validate:
    """Make a callable that measures a model on the validation set of prepared data.

    The callable returns a dict: `loss` (without smoothing, in nats per sub-word); `perplexity`;
    `accuracy` (of the next sub-word, in per cent); `bleu` (cased, on the first
    `validate_sentences` sentences), with its `bleu_tokenizer`; and `samples`, with source, output
    and reference. `bleu` and `samples` are absent if `validate_sentences` is 0. For a parser, `f1`
    replaces `bleu`: the F1 of EVALB for sentences of all lengths, with the parameters of
    COLLINS.prm. These parameters leave out the bracket TOP around each tree. Several processes
    divide the validation set among themselves. Raises DataError if a sentence is longer than the
    learned positions allow, MissingExtra if BLEU's tokenizer is not installed, and the errors of
    `Pairs.open` and `open_tokenizer`. The callable raises TrainingError if a pair does not fit the
    memory.
    """
    refuse_missing(recipe.training.bleu_tokenizer)
    pairs, tokenizer = Pairs.open(data, "valid"), open_tokenizer(data)
    _refuse_beyond_positions(pairs, recipe.model, data)
    wanted = recipe.training.validate_sentences
    sources = list(read_lines(data / "valid.source.txt"))[:wanted]
    references = list(read_lines(data / "valid.target.txt"))[:wanted]
    trees = recipe.task.output == "trees"
    name, decoded, measured = ("f1", _parsed, _f1) if trees else ("bleu", _translated, _bleu)

    def measured_now(model: EncoderDecoder) -> dict[str, Any]:
        loss, accuracy = loss_and_accuracy(model, pairs, recipe, processes)
        result: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss, 1)}
        result["accuracy"] = accuracy
        if sources:
            share = slice(processes.rank, None, processes.count)
            mine = decoded(model, tokenizer, recipe, sources[share], references[share])
            parts = processes.all(mine)
            outputs = [parts[i % len(parts)][i // len(parts)] for i in range(len(sources))]
            result[name] = measured(outputs, references, recipe)
            if name == "bleu":
                result["bleu_tokenizer"] = recipe.training.bleu_tokenizer
            shown = list(zip(sources, outputs, references, strict=True))[:SAMPLES]
            result["samples"] = [{"source": s, "output": o, "reference": r} for s, o, r in shown]
        return result

    def validate(model: EncoderDecoder) -> dict[str, Any]:
        weight = model.output_matrix.weight
        model.eval()
        with model.computing_by(for_validation(recipe.training, weight.device, weight.dtype)):
            result = measured_now(model)
        model.train()
        return result

    return validate


def _translated(
    model: EncoderDecoder, tokenizer: AnyTokenizer, recipe: Recipe, sources: list[str], _: list[str]
) -> list[str]:
    translator = Translator(model, tokenizer, recipe.search, recipe.data.max_length)
    return translator.translate(sources, split=True)


def _bleu(outputs: list[str], references: list[str], recipe: Recipe) -> float:
    return bleu(outputs, [references], recipe.training.bleu_tokenizer)


def _parsed(
    model: EncoderDecoder, tokenizer: AnyTokenizer, recipe: Recipe, _: list[str], gold: list[str]
) -> list[str]:
    """Parse the words of the gold trees.

    The returned trees are within a bracket TOP, which EVALB does not count. If the task's form is
    "normalised", the tags of the gold trees replace the tags XX that the model writes.
    """
    trees = list(map(without_blanks, read_trees(gold, "valid.target.txt")))
    found = Parser(model, tokenizer, recipe).parse(tree.words() for tree in trees)
    if recipe.task.form == "normalised":
        found = list(map(with_tags_of, found, trees))
    return [bracketed(Tree(TOP, (tree,))) for tree in found]


def _f1(outputs: list[str], references: list[str], _: Recipe) -> float:
    found, gold = (
        (tree.children[0] for tree in read_trees(lines, "trees")) for lines in (outputs, references)
    )
    f1 = compare_trees(found, gold).f1
    return 0.0 if math.isnan(f1) else f1


def compare_trees(found: Iterable[Tree], gold: Iterable[Tree]) -> LengthSummary:
    """EVALB's figures with the parameters of COLLINS.prm, for all sentence lengths.

    The given trees have no bracket TOP around them.
    """
    found, gold = list(found), list(gold)
    parameters = replace(COLLINS, max_errors=len(gold))
    return score_brackets(map(_for_evalb, gold), map(_for_evalb, found), parameters).all


def _for_evalb(tree: Tree) -> bytes:
    """The tree inside a bracket TOP, as bytes.

    EVALB cannot read a word that contains a blank, so each blank in a word becomes _.
    """
    return bracketed(Tree(TOP, (without_blanks(tree),))).encode()


def _refuse_beyond_positions(pairs: Pairs, recipe: ModelRecipe, data: Path) -> None:
    """Raise DataError if a sentence is longer than the number of positions that the model learns.

    Validation, unlike training, keeps long sentences; without this check, the first validation
    would fail, perhaps after hours of training.
    """
    for side, lengths in (("source", pairs.source_lengths), ("target", pairs.target_lengths)):
        if recipe.positions == "learned" and lengths.max() > recipe.max_positions:
            raise DataError(
                f"{lengths.max()} pieces, and the model learns model.max_positions = "
                f"{recipe.max_positions}: raise it, or prepare the data without this sentence",
                data / f"valid.{side}.txt",
                int(lengths.argmax()) + 1,
            )


@torch.no_grad()
def loss_and_accuracy(
    model: EncoderDecoder, pairs: Pairs, recipe: Recipe, processes: Processes = ALONE
) -> tuple[float, float]:
    """The plain loss in nats per target sub-word, and the accuracy in per cent, over all pairs.

    The accuracy (§5.4) is the share of positions at which the model finds the reference's sub-word
    most likely, given the reference before it; </s> counts as a sub-word. Raises TrainingError if
    a single row of a batch does not fit the memory.
    """
    device = model.device
    # No pair is dropped: a batch has room for the longest sentences.
    limits = {
        "source_tokens": max(recipe.data.source_tokens, int(pairs.source_lengths.max())),
        "target_tokens": max(recipe.data.target_tokens, int(pairs.target_lengths.max())),
    }
    rules = recipe.data.model_copy(update=limits)
    share = BatchShare(processes.rank, processes.count)
    join = recipe.joins_pairs
    batches = Batches(pairs, rules, seed=0, layout="grouped", join=join, share=share)
    total = torch.zeros(3, dtype=torch.float64, device=device)  # loss, right tokens, all tokens
    for batch in batches.rest_of_epoch():
        total += _sums(model, batch.to(device))
    processes.add_up(total)
    return float(total[0] / total[2]), float(100 * total[1] / total[2])


def _sums(model: EncoderDecoder, batch: Batch) -> Tensor:
    """Sums over a batch: the loss, the correctly predicted tokens, and all target tokens.

    If the batch does not fit the memory that training leaves free, it is computed in halves. Raises
    TrainingError if a single row does not fit.
    """
    try:
        return _sums_at_once(model, batch)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    if len(batch.labels) == 1:
        raise TrainingError(
            f"validation: a pair of {batch.source_tokens} + {batch.target_tokens} pieces does not "
            "fit the memory that training leaves: lower data.source_tokens and data.target_tokens, "
            "or the size of the model, or prepare the data without this pair"
        )
    free_memory(model.device)
    first, second = (_sums(model, half) for half in batch.halves())
    return first + second


def _sums_at_once(model: EncoderDecoder, batch: Batch) -> Tensor:
    total = torch.zeros(3, dtype=torch.float64, device=model.device)
    states = model.decode(batch.target, model.encode(batch.source), batch.source).flatten(0, 1)
    labels = batch.labels.flatten()
    total[0] += model.by.cross_entropy(*model.factors(states), labels, smoothing=0.0)[1]
    for some, right in zip(states.split(LABELS_AT_ONCE), labels.split(LABELS_AT_ONCE), strict=True):
        total[1] += ((model.logits(some).argmax(-1) == right) & (right != 0)).sum()
    total[2] += batch.target_tokens
    return total
