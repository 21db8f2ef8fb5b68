"""The rows of Table 3 as recipes at any size, and the training of a row of Table 2, 3 or 4."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from regard.api import train
from regard.errors import Diverged
from regard.paper import BASE, TABLE_3, parameters
from regard.parts.kept import Measured, Task
from regard.parts.settings import settings_of
from regard.recipe import Recipe
from regard.run.journal import read_journal

_COPIED = ("dropout", "label_smoothing", "positions")
"""Fields that are not scaled: if a row of Table 3 changes one, our row takes the paper's value."""
_SAVED = ("steps", "save_every", "keep", "average")
"""Fields that decide which checkpoints are averaged."""


def scaled(row: str, base: Recipe) -> Recipe:
    """`base` with the change that a row of Table 3 makes to the paper's base model.

    If the paper's row has, for example, twice the heads of the paper's base model, the recipe has
    twice the heads of `base`. These numbers are scaled: the steps, the interval of validation, the
    layers, the widths, the heads, and the products h d_k and h d_v. The numbers of layers and of
    heads, the widths and the products are rounded. Dropout, label smoothing and the kind of
    positions are not scaled: if the row changes one of them, the paper's value is taken. A table of
    learned positions is long enough for the longest sentence and for its translation, which may be
    longer (§6.1). Every row averages checkpoints as `base` does, with one exception: if `base`
    averages as the paper's base model does, row big averages as the paper's big model does.
    """
    its, paper, ours = TABLE_3[row].model, BASE.model, base.model
    heads = _by_ratio(its.heads, paper.heads, ours.heads)
    wanted: dict[str, Any] = {
        "layers": _by_ratio(its.layers, paper.layers, ours.layers),
        "decoder_layers": _by_ratio(its.layers, paper.layers, ours.decoder_layers),
        "d_model": _by_ratio(its.d_model, paper.d_model, ours.d_model),
        "d_ff": _by_ratio(its.d_ff, paper.d_ff, ours.d_ff),
        "decoder_d_ff": _by_ratio(its.d_ff, paper.d_ff, ours.decoder_d_ff),
        "heads": heads,
        "decoder_heads": _by_ratio(its.heads, paper.heads, ours.decoder_heads),
        "d_k": _by_ratio(its.heads * its.d_k, paper.heads * paper.d_k, ours.heads * ours.d_k)
        // heads,
        "d_v": _by_ratio(its.heads * its.d_v, paper.heads * paper.d_v, ours.heads * ours.d_v)
        // heads,
    }
    changes = wanted if wanted != {name: getattr(ours, name) for name in wanted} else {}
    for name in _COPIED:
        section = "model" if name in type(paper).model_fields else "training"
        printed = getattr(getattr(TABLE_3[row], section), name)
        if printed != getattr(getattr(BASE, section), name):
            changes[name] = printed
    if changes.get("positions") == "learned":
        changes["max_positions"] = base.data.max_length + base.search.max_extra
    times, rest = divmod(TABLE_3[row].training.steps, BASE.training.steps)
    assert not rest
    if times > 1:
        changes["steps"] = times * base.training.steps
        changes["validate_every"] = times * base.training.validate_every
    if _saved(base) == _saved(BASE):
        changes |= _saved(TABLE_3[row])
    return base.but(**changes)


def _saved(recipe: Recipe) -> dict[str, Any]:
    return {name: getattr(recipe.training, name) for name in _SAVED}


def _by_ratio(row: int, paper: int, ours: int) -> int:
    return max(1, round(row * ours / paper))


def row_task(out: Path, name: str, seed: int, recipe: Recipe, data: Path) -> Task:
    """The training of a row with a seed on prepared `data`, in `out`/runs/NAME-SEED."""
    seeded = recipe.but(seed=seed)
    work = partial(train_row, run_of(out, name, seed), data, seeded)
    count = parameters(recipe.model, recipe.tokenizer.vocabulary)
    cost = float(count * recipe.training.steps)
    return Task(name, seed, settings_of(seeded), work, cost)


def run_of(out: Path, name: str, seed: int) -> Path:
    """The run directory of a row that is trained with this seed."""
    return out / "runs" / f"{name}-{seed}"


def train_row(run: Path, data: Path, recipe: Recipe) -> Measured:
    """Train a row in the directory `run`, or continue its training, and return its figures.

    `perplexity`, `accuracy` and `bleu` (for a parser, `f1`) are those of the last validation, which
    measures the weights of the last step, without averaging, as in Table 3. The other figures are
    `steps`, `seconds`, `counted_flop` and `estimated_flop`. If training diverges, the result is
    `diverged_figures`. Other errors of training are raised.
    """
    try:
        train(out=run, data=data, recipe=recipe)
    except Diverged:
        return diverged_figures(recipe)
    result = json.loads((run / "result.json").read_text("utf-8"))
    last = result["last_validation"]
    numbers = {name: last[name] for name in ("perplexity", "accuracy", _score(recipe))}
    cost = {name: result["cost"][name] for name in ("counted_flop", "estimated_flop")}
    return {**numbers, "steps": result["step"], "seconds": result["seconds"], **cost}


def diverged_figures(recipe: Recipe) -> Measured:
    """The figures of a diverged training, with the entry `diverged`, which is 1.

    The perplexity is the size of the vocabulary, as if every token were equally probable. Accuracy
    and BLEU (for a parser, F1) are 0.
    """
    guess = {"perplexity": float(recipe.tokenizer.vocabulary), "accuracy": 0.0}
    return {**guess, _score(recipe): 0.0, "diverged": 1.0}


def _score(recipe: Recipe) -> str:
    return "f1" if recipe.task.output == "trees" else "bleu"


def state_of(out: Path, row: str, found: Mapping[int, object], steps: int) -> str:
    """How far a row is: `done`, or the progress of the seeds whose figures in `found` are None."""
    unfinished: dict[str, list[str]] = {}
    for seed in (seed for seed, one in found.items() if one is None):
        progress = _progress(run_of(out, row, seed), steps)
        unfinished.setdefault(progress, []).append(str(seed))
    told = (
        f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {progress}"
        for progress, seeds in unfinished.items()
    )
    return "; ".join(told) or "done"


def _progress(run: Path, steps: int) -> str:
    journal = run / "journal.jsonl"
    records = read_journal(journal) if journal.exists() else []
    done = max((record.get("step", 0) for record in records), default=None)
    return "waiting" if done is None else f"step {done:,} of {steps:,}"
