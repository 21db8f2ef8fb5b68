"""Table 3: variations of the base model, on the development set, without averaging (§6.2)."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from regard.paper import (
    BIG_VOCABULARY,
    TABLE_3,
    TABLE_3_RESULTS,
    TABLE_3_VOCABULARY,
    parameters,
)
from regard.parts.kept import Figures, Measured, Task
from regard.recipe import Recipe, changes
from regard.reproduce.chart import Axis, Series, chart
from regard.reproduce.prepared import prepare_text_once
from regard.reproduce.rows import row_task, scaled, state_of
from regard.reproduce.scales import data_in
from regard.reproduce.tables import NONE, Experiment, GrowingTable, Study, cell, figure_of

_Found = dict[str, dict[int, Measured | None]]
"""The figures of each row by seed; None for a seed that is not finished."""


def _recipes(study: Study) -> dict[str, Recipe]:
    base = study.scale.base(study.out)
    return {row: scaled(row, base) for row in TABLE_3}


def _tasks(study: Study) -> list[Task]:
    recipes, data = _recipes(study).items(), data_in(study.out)
    return [
        row_task(study.out, row, seed, recipe, data)
        for seed in study.seeds
        for row, recipe in recipes
        if study.trains(row)
    ]


def paper_parameters(row: str) -> int:
    """The number of parameters that a row of Table 3 has at the paper's size.

    It is computed with a vocabulary size that gives the number which Table 3 prints.
    """
    return parameters(TABLE_3[row].model, BIG_VOCABULARY if row == "big" else TABLE_3_VOCABULARY)


def _table(study: Study, numbers: Figures) -> GrowingTable:
    recipes = _recipes(study)
    found = {row: {seed: numbers.get((row, seed)) for seed in study.seeds} for row in recipes}
    rows = [_row(study, row, recipes, found) for row in recipes]
    return GrowingTable(
        f"Table 3: variations of the base model, scale {study.scale.name}",
        _head(study),
        tuple(rows),
        _notes(study, recipes["base"]),
        {
            "scale": study.scale.name,
            "seeds": list(study.seeds),
            "rows": {row: _values(row, recipe, found[row]) for row, recipe in recipes.items()},
        },
        _drawing(found),
    )


def _head(study: Study) -> tuple[str, ...]:
    seeds = study.seeds
    several = ("BLEU, mean",) if len(seeds) > 1 else ()
    return (
        "row", "what differs", "paper: perplexity", "paper: BLEU", "paper: parameters, millions",
        "by formula", *(f"perplexity, seed {s}" for s in seeds),
        *(f"BLEU, seed {s}" for s in seeds), *several, "BLEU - base",
        "accuracy, %", "parameters", "steps", "state",
    )  # fmt: skip


def _row(study: Study, row: str, recipes: dict[str, Recipe], found: _Found) -> tuple[str, ...]:
    printed, recipe, each = TABLE_3_RESULTS[row], recipes[row], found[row].values()
    bleu = _all_of(found[row], "bleu")
    several = (figure_of(bleu),) if len(study.seeds) > 1 else ()
    return (
        row,
        _changes(recipes["base"], recipe) or "the base model",
        f"{printed.perplexity:.2f}",
        f"{printed.bleu:.1f}",
        str(printed.millions),
        f"{paper_parameters(row) / 1e6:.2f}",
        *(cell(one["perplexity"] if one else None, 3) for one in each),
        *(cell(one["bleu"] if one else None, 2) for one in each),
        *several,
        NONE if row == "base" else figure_of(_effects(found, row)),
        figure_of(_all_of(found[row], "accuracy")),
        f"{parameters(recipe.model, recipe.tokenizer.vocabulary):,}",
        f"{recipe.training.steps:,}",
        state_of(study.out, row, found[row], recipe.training.steps),
    )


def _all_of(seeds: dict[int, Measured | None], number: str) -> list[float]:
    return [one[number] for one in seeds.values() if one]


def _effects(found: _Found, row: str) -> list[float]:
    """BLEU of a row minus BLEU of base, for each seed with which both rows are finished."""
    pairs = [(found[row][seed], found["base"][seed]) for seed in found[row]]
    return [one["bleu"] - base["bleu"] for one, base in pairs if one and base]


def _changes(base: Recipe, recipe: Recipe) -> str:
    """The fields in which a row differs from base, with their values, as in `h 1, d_k 128`.

    Fields that follow from other fields, and those about validation and checkpoints, are left out.
    """
    names = {"heads": "h", "layers": "N", "dropout": "P_drop", "label_smoothing": "eps_ls"}
    left_out = {"validate_every", "max_positions", "save_every", "keep", "average"}
    told = []
    for field, _, value in changes(base, recipe):
        name = field.partition(".")[2]
        if name not in left_out and not name.startswith("decoder_"):
            told.append(f"{names.get(name, name)} {value}")
    return ", ".join(told)


def _values(row: str, recipe: Recipe, found: dict[int, Measured | None]) -> dict[str, Any]:
    printed = TABLE_3_RESULTS[row]
    return {
        "paper": {
            "perplexity": printed.perplexity,
            "bleu": printed.bleu,
            "millions": printed.millions,
            "parameters": paper_parameters(row),
            "steps": printed.steps,
        },
        "parameters": parameters(recipe.model, recipe.tokenizer.vocabulary),
        "steps": recipe.training.steps,
        "seeds": {str(seed): numbers for seed, numbers in found.items()},
    }


def _notes(study: Study, base: Recipe) -> tuple[str, ...]:
    model, training, data = base.model, base.training, base.data
    return (
        f"Base here: {model.depth} layers, d_model {model.d_model}, d_ff {model.d_ff}, h "
        f"{model.heads}, {training.steps:,} steps of {data.source_tokens:,} + "
        f"{data.target_tokens:,} tokens, learned from {study.scale.text}. Each row keeps the "
        "paper's ratio to base, rounded to whole layers, and its printed dropout, label "
        "smoothing and positions.",
        "Perplexity (per sub-word, without smoothing), BLEU (sacreBLEU 13a, cased; beam "
        f"{base.search.beam}, alpha {base.search.alpha}) and accuracy of the next sub-word are of "
        "the development set and of the weights of the last step; no checkpoints are averaged. "
        '"By formula" are the parameters at the paper\'s size in millions, for '
        f"{TABLE_3_VOCABULARY:,} entries (big: {BIG_VOCABULARY:,}).",
    )


def _drawing(found: _Found) -> str:
    base = TABLE_3_RESULTS["base"].bleu
    points = tuple(
        (TABLE_3_RESULTS[row].bleu - base, fmean(effects), row)
        for row in found
        if (effects := _effects(found, row))
    )
    x, y = Axis("BLEU - base, in the paper"), Axis("BLEU - base, here")
    return chart("Table 3: the effect of each row on BLEU", x, y, [Series("rows", points)])


TABLE_3_EXPERIMENT = Experiment("table3", prepare_text_once, _tasks, _table, _recipes)
"""The functions that make Table 3."""
