"""Validation during training: perplexity without smoothing, and BLEU by really decoding.

Handed to `train` as a callable, so that the loop knows neither search nor scores.
"""

from pathlib import Path
from typing import Any

import torch

from regard.data.batches import Batches
from regard.data.pairs import Pairs
from regard.errors import DataError
from regard.loss import perplexity
from regard.recipe import ModelRecipe, Recipe
from regard.score.bleu import bleu
from regard.text.files import read_lines
from regard.text.tokenizer import Tokenizer
from regard.train import Validate, batch_loss
from regard.transformer import Transformer
from regard.translate import Translator

SAMPLES = 2
"""Sentences shown with their translations at each validation."""


def validator(data: Path, recipe: Recipe) -> Validate:
    """A callable that measures a model on the validation set of prepared data.

    It returns `loss` (plain, nats per sub-word), `perplexity`, `bleu` (sacreBLEU 13a, cased, on the
    first `validate_sentences`; absent where that is 0) and `samples`: source, output, reference.
    Raises DataError where the model will not have positions for a sentence.
    """
    pairs, tokenizer = Pairs.open(data, "valid"), Tokenizer.load(data / "tokenizer.json")
    _refuse_beyond_positions(pairs, recipe.model, data)
    wanted = recipe.training.validate_sentences
    sources = list(read_lines(data / "valid.source.txt"))[:wanted]
    references = list(read_lines(data / "valid.target.txt"))[:wanted]

    def validate(model: Transformer) -> dict[str, Any]:
        model.eval()
        loss = plain_loss(model, pairs, recipe)
        result: dict[str, Any] = {"loss": loss, "perplexity": perplexity(loss, 1)}
        if sources:
            translator = Translator(model, tokenizer, recipe.search, recipe.data.max_length)
            outputs = translator.translate(sources, split=True)
            result["bleu"] = bleu(outputs, [references])
            shown = zip(sources, outputs, references, strict=True)
            result["samples"] = [
                dict(zip(("source", "output", "reference"), s, strict=True)) for s in shown
            ][:SAMPLES]
        model.train()
        return result

    return validate


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
def plain_loss(model: Transformer, pairs: Pairs, recipe: Recipe) -> float:
    """Cross-entropy without smoothing per target sub-word, in nats, over all pairs."""
    device = model.embedding.tokens.weight.device
    # Whatever is to be validated on fits: a batch has room for the longest sentence, even alone.
    limits = {
        "source_tokens": max(recipe.data.source_tokens, int(pairs.source_lengths.max())),
        "target_tokens": max(recipe.data.target_tokens, int(pairs.target_lengths.max())),
    }
    batches = Batches(pairs, recipe.data.model_copy(update=limits), seed=0, layout="grouped")
    total, tokens = 0.0, 0
    for batch in batches.take(batches.batches_per_epoch):
        total += float(batch_loss(model, batch.to(device), smoothing=0.0)[1])
        tokens += batch.target_tokens
    return total / tokens
