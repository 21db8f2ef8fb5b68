"""The size of a run, computed without a trial: parameters, memory and disk."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.families.choose import new_model
from regard.recipe import ModelRecipe, Recipe
from regard.run import checkpoints
from regard.run.setup import Setup

JOURNAL_LINE = 300
"""Approximate bytes of a logged step in the journal."""


class Parameters(NamedTuple):
    """The number of parameters in each part of a model, including those that are not trained."""

    embedding: int
    """The number of parameters outside the layers of encoder and decoder. These parameters are in
    the matrix, or the matrices, that embed source and target and compute the logits, and in other
    parts, such as learned positions."""
    encoder: int
    decoder: int

    @classmethod
    def of(
        cls, model: ModelRecipe, vocabulary: int, source_vocabulary: int | None = None
    ) -> "Parameters":
        """Count the parameters without allocating memory for them."""
        with torch.device("meta"):
            whole = new_model(model, vocabulary, source_vocabulary)
        layers: list[Any] = [whole.encoder, whole.decoder]
        encoder, decoder = (sum(p.numel() for p in part.parameters()) for part in layers)
        return cls(whole.parameter_count - encoder - decoder, encoder, decoder)


class Memory(NamedTuple):
    """Bytes that a process keeps from step to step, in `FlatAdam` or `ShardedAdam`."""

    weights: int
    """Bytes of the rounded weights that the model computes with; 0 in fp32 or if `shards` > 1."""
    master: int
    """Bytes of the weights in fp32."""
    gradient: int
    """Bytes of the last batch's gradient, and of the sum of a step's gradients in fp32. With
    several shards, only the sum is kept."""
    moments: int
    """Bytes of Adam's two moments, in fp32."""

    @classmethod
    def of(cls, parameters: int, dtype: torch.dtype, shards: int = 1) -> "Memory":
        """Compute the bytes for this many parameters, divided among `shards` processes."""
        if shards > 1:
            return cls(*(size * -(-parameters // shards) for size in (0, 4, 4, 8)))
        copy = 0 if dtype == torch.float32 else dtype.itemsize
        return cls(*(size * parameters for size in (copy, 4, dtype.itemsize + 4, 8)))


class Disk(NamedTuple):
    """The disk space that a run takes, and the space that is free."""

    checkpoint: int
    """Bytes of one checkpoint."""
    checkpoints: int
    """The most checkpoints that exist at the same time: the checkpoints that are kept, the one that
    is being written and, if `training.resume_minutes` is set, one that serves only to resume."""
    present: int
    """Number of checkpoints that exist already."""
    model: int
    journal: int
    """Bytes of the journal; 0 if the time is limited: the number of steps is then not known."""
    free: int
    """Bytes that are free on the disk of the run directory."""

    @property
    def needed(self) -> int:
        """Bytes by which the run directory will still grow."""
        more = max(0, self.checkpoints - self.present)
        return more * self.checkpoint + self.model + self.journal

    @classmethod
    def of(cls, recipe: Recipe, parameters: int, out: Path) -> "Disk":
        """Compute the bytes for a run in `out`; this directory need not exist yet."""
        training = recipe.training
        kept = training.keep + (training.average if training.best != "last" else 0)
        place = next(p for p in (out, *out.absolute().parents) if p.is_dir())
        lines = 0 if training.minutes else training.steps // training.log_every
        return cls(
            checkpoint=12 * parameters,  # weights and two moments, in fp32
            checkpoints=kept + 1 + (training.resume_minutes > 0),
            present=len(checkpoints.paths(out / "checkpoints")),
            model=4 * parameters,
            journal=JOURNAL_LINE * lines,
            free=shutil.disk_usage(place).free,
        )


@dataclass(frozen=True)
class Outline:
    """The number of parameters of a run's model, and the memory and disk space of the run."""

    parameters: Parameters
    memory: Memory
    disk: Disk


def outline(setup: Setup, out: Path) -> Outline:
    """Compute the size of a run in the directory `out`."""
    recipe, tokenizer = setup.recipe, setup.tokenizer
    parameters = Parameters.of(recipe.model, tokenizer.size, tokenizer.source_size)
    memory = Memory.of(sum(parameters), setup.dtype, setup.shards)
    return Outline(parameters, memory, Disk.of(recipe, sum(parameters), out))
