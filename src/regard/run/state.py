"""Values of the training loop: the progress so far, and the work that is due after a step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.data.batches import Batches
from regard.data.prefetch import Prefetched
from regard.encoder_decoder import EncoderDecoder
from regard.run.sharding import Optimizer, ShardedAdam


@dataclass
class TrainingState:
    """The progress of training, which a checkpoint keeps in addition to tensors."""

    step: int = 0
    """The number of optimizer steps made."""
    source_tokens: int = 0
    """Source tokens learned from so far; </s> counts, padding does not."""
    target_tokens: int = 0
    """Target tokens learned from so far; </s> counts, padding does not."""
    seconds: float = 0.0
    """Seconds that the run took so far, over all its starts; validating and saving count."""
    parts: int = 1
    """Each batch is divided into at least this many parts, so that one part fits the memory."""
    lowest_loss: float = 0.0
    """The lowest loss of a validation, or 100 minus the highest BLEU or F1, as `training.best`
    says; 0 before the first validation."""
    best_step: int = 0
    """The step of the best validation, which had `lowest_loss`; 0 before the first validation."""
    no_better: int = 0
    """The number of validations since the best one."""
    ended: float = 0.0
    """The value that `training.minutes` had when the run's time, or its planned cooldown, was over;
    0 before that."""
    cooldown_minutes: float = 0.0
    """The value of `training.minutes` for which the cooldown was planned; 0 before that."""
    cooldown_steps: int = 0
    """The value of `training.steps` for which the cooldown was planned."""
    cooldown_part: float = 0.0
    """The value of `training.cooldown` for which the cooldown was planned."""
    cooldown_begins: int = 0
    """The last step before the planned cooldown."""
    cooldown_ends: int = 0
    """The last step of the planned cooldown."""

    def judge(self, validation: dict[str, Any], best: str) -> None:
        """Compare a validation with the best one so far; `best` is the value of training.best.

        A validation whose loss, BLEU or F1 is not finite never counts as better.
        """
        figure = validation[judged_by(best)]
        loss = figure if judged_by(best) == "loss" else max(0.0, 100 - figure)
        better = loss < self.lowest_loss or not (self.best_step or self.lowest_loss)
        if better and math.isfinite(figure):
            self.lowest_loss, self.best_step, self.no_better = loss, self.step, 0
        else:
            self.no_better += 1

    def forget_best(self) -> None:
        """Forget the validations so far; later ones are compared only with one another."""
        self.lowest_loss, self.best_step, self.no_better = 0.0, 0, 0

    def gives_up(self, patience: int) -> bool:
        """Whether the last `patience` validations gave no new best; False if patience is 0."""
        return 0 < patience <= self.no_better

    def saved(self) -> dict[str, Any]:
        """The fields by their names in a checkpoint's manifest, where `parts` is called "cuts"."""
        return {"cuts" if name == "parts" else name: value for name, value in vars(self).items()}

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> TrainingState:
        """Make a state from a dict that `saved` returned; raises TypeError for an unknown field.

        The field "starting", which earlier versions saved, is ignored.
        """
        fields = {"parts" if name == "cuts" else name: value for name, value in saved.items()}
        fields.pop("starting", None)
        return cls(**fields)


def judged_by(best: str) -> str:
    """The name of the figure by which validations are compared: "loss", "bleu" or "f1".

    `best` is the value of training.best.
    """
    return "loss" if best == "last" else best


class Due(NamedTuple):
    """The work that is due after a step; a signal during this work is handled one step later."""

    log: bool
    validate: bool
    save: bool
    """Save a checkpoint that may be averaged."""
    resume: bool
    """Save a checkpoint to continue from; if `save` is False, it will not be averaged."""
    leave: bool
    """Whether a signal has come; if so, save, even if no save is due, and raise Interrupted."""


class Training(NamedTuple):
    """The objects of the training loop."""

    model: EncoderDecoder
    optimizer: Optimizer
    batches: Batches | Prefetched
    state: TrainingState

    def whole_model(self) -> EncoderDecoder:
        """The undivided model in this process; all processes must call this together."""
        if isinstance(self.optimizer, ShardedAdam):
            return self.optimizer.whole_model()
        return self.model
