"""A task small enough to be learned inside a test: to say again a string of digits."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.arithmetic.int8 import has_int8_training
from regard.data.batches import Batch, Batches
from regard.data.pairs import Pairs
from regard.data.prepare import prepare_text
from regard.measure.validation import validator
from regard.recipe import Recipe
from regard.run.journal import Record, read_journal
from regard.run.run import Run
from regard.training import Validate, train
from run.killing import in_fork

needs_int8 = pytest.mark.skipif(
    torch.cuda.is_available() or not has_int8_training(), reason="no training in int8 here"
)
RECIPE = Recipe().but(
    layers=1,
    d_model=16,
    d_ff=23,
    heads=2,
    vocabulary=300,
    held_out=5,
    source_tokens=61,
    target_tokens=61,
    layout="grouped",
    steps=11,
    warmup_steps=7,
    precision="fp32",
    log_every=1,
    validate_every=5,
    validate_sentences=2,
    save_every=2,
    save_minutes=0.0,
    keep=3,
    average=3,
    max_extra=9,
)
"""About a dozen pairs a batch and nine batches an epoch; dropout as in the paper.

A model that has learned nothing translates by as many words as it may: so it may have few.
"""


def strings(count: int, seed: int, longest: int = 7) -> list[str]:
    """Digits with spaces between, for instance "3 1 4"; two to `longest` of them."""
    draw = random.Random(seed)
    return [" ".join(draw.choices("0123456789", k=draw.randint(2, longest))) for _ in range(count)]


def prepared(
    folder: Path,
    recipe: Recipe = RECIPE,
    lines: list[str] | None = None,
    tokenizer: Path | None = None,
) -> Path:
    """Data to train on, in `folder`/data."""
    text = folder / "digits.txt"
    text.write_text("".join(line + "\n" for line in lines or strings(97, seed=1)), "utf-8")
    prepare_text([text], [text], folder / "data", recipe, tokenizer=tokenizer)
    return folder / "data"


def trained(
    directory: Path,
    data: Path,
    recipe: Recipe = RECIPE,
    validate: Validate | None = None,
    **options: Any,
) -> dict[str, Tensor]:
    """Train to the end, or until `train` raises; either way the directory is free again."""
    run = Run(directory, recipe, data, **options)
    try:
        return train(run, validate)
    finally:
        run.close()


def train_in_fork(
    directory: Path, data: Path, recipe: Recipe, *, validated: bool = False, **options: Any
) -> None:
    """Train to the end in another process."""
    in_fork(_train, directory, data, recipe, validated, options)


def _train(
    directory: Path, data: Path, recipe: Recipe, validated: bool, options: dict[str, Any]
) -> None:
    trained(directory, data, recipe, validator(data, recipe) if validated else None, **options)


def journal(run: Path, *events: str) -> list[Record]:
    """What the journal says of steps and validations, or of these events, without the times."""
    timed = {"time", "seconds", "tokens_per_second"}
    return [
        {key: value for key, value in record.items() if key not in timed}
        for record in read_journal(run / "journal.jsonl")
        if record["event"] in (events or ("step", "validation"))
    ]


def epoch(data: Path, layout: Any, tokens: int, **changes: int) -> list[Batch]:
    """Every pair once, in batches of at most this many tokens."""
    recipe = RECIPE.but(source_tokens=tokens, target_tokens=tokens, **changes).data
    batches = Batches(Pairs.open(data, "train"), recipe, 1, layout=layout)
    return batches.take(batches.batches_per_epoch)
