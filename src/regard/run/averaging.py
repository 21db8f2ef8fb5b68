"""Average checkpoints of a run into one model.

§6.1: "we used a single model obtained by averaging the last 5 checkpoints".
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from torch import Tensor

from regard.amounts import count_of
from regard.data.characters import SOURCE_CHARACTERS
from regard.errors import ModelError, RegardError
from regard.run.beginning import begun
from regard.run.checkpoints import (
    FINGERPRINTS,
    Checkpoint,
    newest,
    opened,
    paths,
    step_of,
    to_average,
)
from regard.run.model_directory import write_model
from regard.text.opening import open_tokenizer


def average_weights(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of each weight over the checkpoints, summed in fp64 and returned in fp32.

    The checkpoints are read one after the other, so that they need not all fit the memory. Raises
    ModelError if there is no checkpoint, if one cannot be read, or if the weights of the
    checkpoints differ in name or shape.
    """
    if not checkpoints:
        raise ModelError("no complete checkpoint to average")
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        weights = checkpoint.weights()
        if total and {k: t.shape for k, t in weights.items()} != {
            k: t.shape for k, t in total.items()
        }:
            raise ModelError(f"{checkpoint.path}: its weights differ in shape from the others'")
        for name, tensor in weights.items():
            total[name] = tensor.double() + total[name] if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


def average_run(
    directory: Path,
    out: Path,
    last: int,
    warn: Callable[[str], None],
    *,
    best: bool = False,
    steps: Sequence[int] = (),
) -> list[int]:
    """Make the model directory `out` from some checkpoints of a run; return their steps.

    If `steps` are given, the checkpoints of these steps are averaged. Otherwise, `last` checkpoints
    are averaged: the newest ones or, with `best`, the ones nearest to the step of the best
    validation. Extra checkpoints, which serve only to continue from, are taken only if there are
    too few other checkpoints. `warn` is called once for each damaged checkpoint that is skipped.

    Raises ModelError if `directory` has no recipe.toml, or if a chosen checkpoint cannot be read.
    With `steps`, raises ModelError if one of these checkpoints is missing or damaged. Without
    `steps`, raises ModelError if there are fewer than `last` undamaged checkpoints or, with `best`,
    if no validation was recorded. Raises RegardError if `out` exists or cannot be written, and the
    errors of `begun`, `average_weights` and `open_tokenizer`.
    """
    recipe = begun(directory)
    if recipe is None:
        raise ModelError(
            f"{directory}: is not a run directory, because it has no recipe.toml: name one that "
            "regard train made"
        )
    if out.exists():
        raise RegardError(f"{out}: exists already: name a new directory")
    told = set[str]()

    def once(message: str) -> None:
        if message not in told:
            told.add(message)
            warn(message)

    found, weights = _mean(directory, last, once, best, steps)
    averaged = sorted(checkpoint.step for checkpoint in found)
    manifest = found[0].manifest  # some manifests have no SOURCE_CHARACTERS
    about = {k: manifest[k] for k in (*FINGERPRINTS, SOURCE_CHARACTERS) if k in manifest}
    about |= {"step": averaged[-1], "averaged": averaged}
    tokenizer = open_tokenizer(directory)
    write_model(out, recipe, tokenizer, weights, about)
    return averaged


def _mean(
    directory: Path, last: int, warn: Callable[[str], None], best: bool, steps: Sequence[int]
) -> tuple[list[Checkpoint], dict[str, Tensor]]:
    """The chosen checkpoints, and the mean of their weights.

    The run may still be training and removing checkpoints. So if a chosen checkpoint is gone before
    it is read, the choice is made again.
    """
    while True:
        found = _chosen(directory / "checkpoints", last, warn, best, steps)
        if not found:
            raise ModelError(
                f"{directory}: has no checkpoint to average: name a run that has checkpoints, or "
                "continue training"
            )
        if len(found) < last and not steps:
            raise ModelError(
                f"{directory}: has {count_of(len(found), 'complete checkpoint')}, not {last}: "
                f"give --last {len(found)}"
            )
        try:
            return found, average_weights(found)
        except ModelError:
            if all(checkpoint.path.exists() for checkpoint in found):
                raise


def _chosen(
    folder: Path, last: int, warn: Callable[[str], None], best: bool, steps: Sequence[int]
) -> list[Checkpoint]:
    if missing := sorted(set(steps) - {step_of(path) for path in paths(folder)}):
        there = ", ".join(str(step_of(path)) for path in paths(folder)) or "none"
        raise ModelError(f"{folder}: has no checkpoint of step {missing[0]}: it has {there}")
    if steps:
        return [opened(folder / f"step-{step}") for step in sorted(set(steps))]
    found = newest(folder, 1, warn) if best else []
    step = found[0].manifest["state"].get("best_step", 0) if found else 0
    if found and not step:
        raise ModelError(f"{folder}: no validation has been recorded: leave out --best")
    return to_average(folder, step, last, warn)
