"""Table 2: the Transformer and other families on unseen sentences, with the cost of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.paper import TABLE_2, Table2Row, parameters
from regard.recipe import Recipe
from regard.reproduce.chart import Axis, Series, chart
from regard.reproduce.prepared import prepare_text_once
from regard.reproduce.rows import row_task, run_of, scaled, state_of
from regard.reproduce.scales import Scale, data_in
from regard.reproduce.tables import (
    NONE,
    Experiment,
    GrowingTable,
    Study,
    cell,
    figure_of,
)
from regard.score.bleu import bleu
from regard.score.report import MultiBleu
from regard.study.kept import Figures, Measured, Task, numbers_of
from regard.translation import load

SYSTEMS = {
    "ByteNet": "dilated",
    "Deep-Att + PosUnk": None,
    "GNMT + RL": "recurrent",
    "ConvS2S": "convolutional",
    "MoE": None,
    "Deep-Att + PosUnk Ensemble": None,
    "GNMT + RL Ensemble": None,
    "ConvS2S Ensemble": None,
    "Transformer (base model)": "base",
    "Transformer (big)": "big",
}
"""For each published system, our row with a model of the same kind; None if there is none."""
ENSEMBLE = "ensemble"
LANGUAGE = "de"
"""The language of the translations; its rules divide text into words for the paper's BLEU."""


def family_recipes(base: Recipe) -> dict[str, Recipe]:
    """The recipe of each row by name: base, big, and other families of about the size of base.

    All rows have the batches and the number of steps of base, but big has three times the steps.
    """
    model, longest = base.model, base.data.max_length + base.search.max_extra
    learned = {"positions": "learned", "max_positions": longest}
    return {
        "recurrent": base.but(family="recurrent", layers=max(2, model.layers)),
        "convolutional": base.but(family="convolutional", layers=2 * model.layers, **learned),
        "dilated": base.but(
            family="dilated",
            layers=max(5, 10 * model.layers // 3),
            d_model=3 * model.d_model // 2,
        ),
        "base": scaled("base", base),
        "big": scaled("big", base),
    }


def _recipes(study: Study) -> dict[str, Recipe]:
    return family_recipes(study.scale.base(study.out))


def _members(study: Study) -> tuple[int, ...]:
    """The seeds of the base models in the ensemble: the seeds of the study, but at least two."""
    return study.seeds if len(study.seeds) > 1 else (study.seeds[0], study.seeds[0] + 1)


def _ensemble(study: Study) -> str:
    """The name of the ensemble, with the number of its models."""
    return f"{ENSEMBLE}-of-{len(_members(study))}"


def _tasks(study: Study) -> list[Task]:
    recipes = _recipes(study)
    trained = [
        row_task(study.out, row, seed, recipe, data_in(study.out))
        for seed in study.seeds
        for row, recipe in recipes.items()
    ]
    more = [
        row_task(study.out, "base", seed, recipes["base"], data_in(study.out))
        for seed in _members(study)
        if seed not in study.seeds
    ]
    tested = [_tested(study, row, seed, (seed,)) for seed in study.seeds for row in recipes]
    return [*trained, *more, *tested, _tested(study, _ensemble(study), 1, _members(study))]


def _tested(study: Study, row: str, seed: int, members: tuple[int, ...]) -> Task:
    work = partial(translate_unseen, study.scale, study.out, row, members)
    return Task(f"unseen-{row}", seed, f"{study.scale} {members}", work)


def translate_unseen(scale: Scale, out: Path, row: str, members: Sequence[int]) -> Measured | None:
    """Translate unseen sentences with the average of a row's last checkpoints (§6.1).

    `members` are the seeds of the models that translate together: base models for an ensemble, one
    model for any other row. Returns BLEU by sacreBLEU (13a) and by the paper's script, both 0 if a
    training diverged; None if a model is not trained yet.
    """
    name = "base" if row.startswith(ENSEMBLE) else row
    trained = [numbers_of(out, name, seed) for seed in members]
    if None in trained:
        return None
    if any("diverged" in one for one in trained if one):
        return {"bleu_13a": 0.0, "bleu_paper": 0.0}
    sources, references = scale.unseen(out)
    first, *others = (run_of(out, name, seed) for seed in members)
    found = load(first, *others).translate(sources)
    return {
        "bleu_13a": bleu(found, [references]),
        "bleu_paper": float(MultiBleu(LANGUAGE).corpus_score(found, [references]).score),
    }


def _table(study: Study, numbers: Figures) -> GrowingTable:
    recipes = _recipes(study)
    rows = [
        (name, *_printed(row), *_ours(study, SYSTEMS[name], recipes, numbers))
        for name, row in TABLE_2.items()
    ]
    together = f"Transformer (base), {len(_members(study))} models together"
    rows.append((together, *[NONE] * 4, *_ours(study, _ensemble(study), recipes, numbers)))
    return GrowingTable(
        f"Table 2: translation quality and training cost, scale {study.scale.name}",
        (
            "system", "paper: EN-DE", "paper: EN-FR", "paper: operations, EN-DE", "EN-FR",
            "here", *(f"BLEU, seed {seed}" for seed in study.seeds), "BLEU as in the paper",
            "operations", "the paper's estimate", "seconds", "parameters", "state",
        ),
        tuple(rows),
        _notes(study, recipes),
        _values(study, recipes, numbers),
        _drawing(study, recipes, numbers),
    )  # fmt: skip


def _printed(row: Table2Row) -> tuple[str, ...]:
    costs = (row.en_de_flops, row.en_fr_flops)
    scores = (NONE if score is None else f"{score:g}" for score in (row.en_de, row.en_fr))
    return (*scores, *(NONE if cost is None else f"{cost:.1e}" for cost in costs))


def _ours(
    study: Study, row: str | None, recipes: dict[str, Recipe], numbers: Figures
) -> tuple[str, ...]:
    if row is None:
        return (NONE,) * (7 + len(study.seeds))
    unseen = [numbers.get((f"unseen-{row}", seed)) for seed in study.seeds]
    scores = [cell(one["bleu_13a"] if one else None, 2) for one in unseen]
    paper = figure_of([one["bleu_paper"] for one in unseen if one], 2)
    if row.startswith(ENSEMBLE):
        state = "done" if unseen[0] else "waiting"
        return (row, *scores, paper, *[NONE] * 4, state)
    recipe, found = recipes[row], {seed: numbers.get((row, seed)) for seed in study.seeds}
    costs = [
        _mean(found, "counted_flop", ".2e"),
        _mean(found, "estimated_flop", ".2e"),
        _mean(found, "seconds", ",.0f"),
    ]
    count = parameters(recipe.model, recipe.tokenizer.vocabulary)
    state = state_of(study.out, row, found, recipe.training.steps)
    if state == "done" and not all(unseen):
        state = "translating"
    return (row, *scores, paper, *costs, f"{count:,}", state)


def _mean(found: dict[int, Measured | None], number: str, form: str) -> str:
    values = [one[number] for one in found.values() if one and number in one]
    return f"{fmean(values):{form}}" if values else NONE


def _notes(study: Study, recipes: dict[str, Recipe]) -> tuple[str, ...]:
    sizes = "; ".join(
        f"{row}: {recipe.model.depth} layers, d_model {recipe.model.d_model}"
        for row, recipe in recipes.items()
    )
    average, of_big = (recipes[row].training.average for row in ("base", "big"))
    checkpoints = f"{average} checkpoints" + f" (big: {of_big})" * (of_big != average)
    smaller = "" if study.scale.name == "paper" else ", and smaller"
    return (
        f"Learned from {study.scale.text}; tested on unseen sentences, with the average of the "
        f"last {checkpoints}, beam {recipes['base'].search.beam} and alpha "
        f"{recipes['base'].search.alpha}. All have the same data, vocabulary, batches, steps "
        f"(big: three times as many), rate and search. {sizes}.",
        "A row here is of the kind of the published system beside it, not that system: no "
        f"reinforcement learning{smaller}. The rate was not chosen for each family. BLEU is "
        "sacreBLEU's (13a, cased), then that of the paper's script (Moses' words, compounds "
        "split). Operations are those of matrix products, counted; the paper's estimate is time x "
        "devices x speed in single precision, so the two are not to be mixed.",
    )


def _values(study: Study, recipes: dict[str, Recipe], numbers: Figures) -> dict[str, Any]:
    def of(row: str) -> dict[str, Any]:
        return {
            str(seed): {
                "trained": numbers.get((row, seed)),
                "unseen": numbers.get((f"unseen-{row}", seed)),
            }
            for seed in study.seeds
        }

    return {
        "scale": study.scale.name,
        "seeds": list(study.seeds),
        "paper": {name: asdict(row) for name, row in TABLE_2.items()},
        "rows": {row: of(row) for row in recipes},
        ENSEMBLE: {
            "seeds": _members(study),
            "unseen": numbers.get((f"unseen-{_ensemble(study)}", 1)),
        },
    }


def _drawing(study: Study, recipes: dict[str, Recipe], numbers: Figures) -> str:
    points = []
    for row in recipes:
        for seed in study.seeds:
            trained, unseen = numbers.get((row, seed)), numbers.get((f"unseen-{row}", seed))
            if trained and unseen and "counted_flop" in trained:
                points.append((trained["counted_flop"], unseen["bleu_13a"], row))
    x, y = Axis("operations of training, counted", log=True), Axis("BLEU of unseen sentences")
    title = "Table 2: BLEU against the cost of training"
    return chart(title, x, y, [Series("models", tuple(points))])


TABLE_2_EXPERIMENT = Experiment("table2", prepare_text_once, _tasks, _table, _recipes)
"""The functions that make Table 2."""
