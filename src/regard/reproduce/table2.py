"""Table 2: the Transformer and other families on unseen sentences, with the cost of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from regard.paper import TABLE_2, Table2Row, parameters
from regard.parts.kept import Figures, Measured, Task, numbers_of
from regard.recipe import Recipe
from regard.reproduce.chart import Axis, Series, chart
from regard.reproduce.prepared import prepare_text_once
from regard.reproduce.rows import run_of, scaled, state_of
from regard.reproduce.scales import Scale
from regard.reproduce.tables import (
    NONE,
    Experiment,
    GrowingTable,
    Study,
    cell,
    figure_of,
)
from regard.reproduce.tried import TriedRow, tried_row
from regard.score.bleu import bleu
from regard.score.report import MultiBleu
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


def family_recipes(base: Recipe) -> dict[str, Recipe]:
    """The recipe of each row by name: base, big, and other families of about the size of base.

    All rows have the batches of base. Big has three times the steps of base; all other rows have as
    many steps as base.
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


def _rows(study: Study) -> dict[str, TriedRow]:
    recipes = family_recipes(study.scale.base(study.out))
    first = study.seeds[0]
    return {name: tried_row(name, recipe, first) for name, recipe in recipes.items()}


def _recipes(study: Study) -> dict[str, Recipe]:
    return {
        run: recipe
        for row in _rows(study).values()
        for run, recipe in row.recipes.items()
        if any(run in row.runs(seed) for seed in study.seeds)
    }


def _members(study: Study) -> tuple[int, ...]:
    """The seeds of the base models in the ensemble: the seeds of the study, but at least two."""
    return study.seeds if len(study.seeds) > 1 else (study.seeds[0], study.seeds[0] + 1)


def _ensemble(study: Study) -> str:
    """The name of the ensemble, with the number of its models."""
    return f"{ENSEMBLE}-of-{len(_members(study))}"


def _tasks(study: Study) -> list[Task]:
    rows = {name: row for name, row in _rows(study).items() if study.trains(name)}
    trained = [
        task for seed in study.seeds for row in rows.values() for task in row.tasks(study.out, seed)
    ]
    tested = [
        _tested(study, row.test_part, seed, row, (seed,))
        for seed in study.seeds
        for row in rows.values()
    ]
    return [*trained, *tested, *(_together(study, rows["base"]) if "base" in rows else ())]


def _together(study: Study, base: TriedRow) -> Iterator[Task]:
    """The tasks of the ensemble: trainings with seeds that the study lacks, and a translation."""
    members = _members(study)
    for seed in members:
        if seed not in study.seeds:
            yield from base.tasks(study.out, seed)
    yield _tested(study, f"unseen-{_ensemble(study)}", 1, base, members)


def _tested(study: Study, part: str, seed: int, row: TriedRow, members: tuple[int, ...]) -> Task:
    work = partial(translate_unseen, study.scale, study.out, row, members)
    runs = f" {tuple(row.tried)}" if len(row.tried) > 1 else ""
    return Task(part, seed, f"{study.scale} {members}{runs}", work)


def translate_unseen(
    scale: Scale, out: Path, row: TriedRow, members: Sequence[int]
) -> Measured | None:
    """Translate unseen sentences with the average of a row's last checkpoints (§6.1).

    `members` are the seeds of the models that translate together: base models for an ensemble, one
    model for any other row. If the row has several runs with a seed, the run with the highest BLEU
    on the development set translates. Returns BLEU by sacreBLEU (13a), and BLEU as the script of
    the paper's authors counts it. Both values are 0 if one of the translating models diverged in
    training. Returns None if a run of the row with one of these seeds is not finished.
    """
    runs = []
    for seed in members:
        best = row.best_run_in(out, seed)
        if best is None:
            return None
        if "diverged" in (numbers_of(out, best, seed) or {}):
            return {"bleu_13a": 0.0, "bleu_paper": 0.0}
        runs.append(run_of(out, best, seed))
    sources, references = scale.unseen(out)
    first, *others = runs
    translated, words = load(first, *others).translate(sources), MultiBleu(scale.language)
    return {
        "bleu_13a": bleu(translated, [references]),
        "bleu_paper": float(words.corpus_score(translated, [references]).score),
    }


def _table(study: Study, numbers: Figures) -> GrowingTable:
    ours = _rows(study)
    rows = []
    for name, row in TABLE_2.items():
        its = SYSTEMS[name]
        cells = _ours(study, ours[its], numbers) if its else (NONE,) * (7 + len(study.seeds))
        rows.append((name, *_printed(row), *cells))
    together = f"Transformer (base), {len(_members(study))} models together"
    rows.append((together, *[NONE] * 4, *_ensemble_cells(study, numbers)))
    return GrowingTable(
        f"Table 2: translation quality and training cost, scale {study.scale.name}",
        (
            "system", "paper: EN-DE", "paper: EN-FR", "paper: operations, EN-DE", "EN-FR",
            "here", *(f"BLEU, seed {seed}" for seed in study.seeds), "BLEU as in the paper",
            "operations", "the paper's estimate", "seconds", "parameters", "state",
        ),
        tuple(rows),
        _notes(study, ours, numbers),
        _values(study, ours, numbers),
        _drawing(study, ours, numbers),
    )  # fmt: skip


def _printed(row: Table2Row) -> tuple[str, ...]:
    costs = (row.en_de_flops, row.en_fr_flops)
    scores = (NONE if score is None else f"{score:g}" for score in (row.en_de, row.en_fr))
    return (*scores, *(NONE if cost is None else f"{cost:.1e}" for cost in costs))


def _ours(study: Study, row: TriedRow, numbers: Figures) -> tuple[str, ...]:
    trained = [row.best_figures(numbers, seed) for seed in study.seeds]
    model, vocabulary = row.recipe.model, row.recipe.tokenizer.vocabulary
    return (
        row.name,
        *_scores([numbers.get((row.test_part, seed)) for seed in study.seeds]),
        _mean(trained, "counted_flop", ".2e"),
        _mean(trained, "estimated_flop", ".2e"),
        _mean(trained, "seconds", ",.0f"),
        f"{parameters(model, vocabulary):,}",
        _state(study, row, numbers),
    )


def _ensemble_cells(study: Study, numbers: Figures) -> tuple[str, ...]:
    name = _ensemble(study)
    found = numbers.get((f"unseen-{name}", 1))
    # The ensemble has the models of all seeds, so it has only one BLEU. The cell of the first seed
    # shows this BLEU, and the cells of the other seeds show no figure.
    none = [None] * (len(study.seeds) - 1)
    return (name, *_scores([found, *none]), *[NONE] * 4, "done" if found else "waiting")


def _scores(unseen: Sequence[Measured | None]) -> tuple[str, ...]:
    scores = (cell(one["bleu_13a"] if one else None, 2) for one in unseen)
    return (*scores, figure_of([one["bleu_paper"] for one in unseen if one]))


def _mean(trained: Sequence[Measured | None], number: str, form: str) -> str:
    values = [one[number] for one in trained if one and number in one]
    return f"{fmean(values):{form}}" if values else NONE


def _state(study: Study, row: TriedRow, numbers: Figures) -> str:
    steps = row.recipe.training.steps
    for run in row.recipes:
        found = {seed: numbers.get((run, seed)) for seed in study.seeds if run in row.runs(seed)}
        state = state_of(study.out, run, found, steps)
        if state != "done":
            return state if len(row.tried) == 1 else f"{run}, {state}"
    tested = all((row.test_part, seed) in numbers for seed in study.seeds)
    return "done" if tested else "translating"


def _notes(study: Study, rows: Mapping[str, TriedRow], numbers: Figures) -> tuple[str, ...]:
    recipes = {name: row.recipe for name, row in rows.items()}
    sizes = "; ".join(
        f"{row}: {recipe.model.depth} layers, d_model {recipe.model.d_model}"
        for row, recipe in recipes.items()
    )
    average, of_big = (recipes[row].training.average for row in ("base", "big"))
    checkpoints = f"{average} checkpoints" + f" (big: {of_big})" * (of_big != average)
    smaller = "" if study.scale.name == "paper" else ", and smaller"
    several = [row.tried_bleu(numbers) for row in rows.values() if len(row.tried) > 1]
    return (
        f"Learned from {study.scale.text}; tested on unseen sentences, with the average of the "
        f"last {checkpoints}, beam {recipes['base'].search.beam} and alpha "
        f"{recipes['base'].search.alpha}. All have the same data, vocabulary, batches, steps "
        f"(big: three times as many) and search. {sizes}.",
        "Each other family has that learning rate and that dropout with which BLEU on the "
        f"development set was highest, with seed {study.seeds[0]}: {'; '.join(several)}. Base has "
        f"{recipes['base'].training.rate:.3g} and {recipes['base'].model.dropout:g}. Time and "
        "operations are those of one training.",
        "A row here is of the kind of the published system beside it, not that system: no "
        f"reinforcement learning{smaller}. BLEU is "
        "sacreBLEU's (13a, cased), then that of the paper's script (Moses' words, compounds "
        "split). Operations are those of matrix products, counted; the paper's estimate is time x "
        "devices x speed in single precision, so the two are not to be mixed.",
    )


def _values(study: Study, rows: Mapping[str, TriedRow], numbers: Figures) -> dict[str, Any]:
    def of(row: TriedRow) -> dict[str, Any]:
        return {
            str(seed): {
                "tried": row.figures(numbers, seed),
                "trained": row.best_figures(numbers, seed),
                "unseen": numbers.get((row.test_part, seed)),
            }
            for seed in study.seeds
        }

    return {
        "scale": study.scale.name,
        "seeds": list(study.seeds),
        "paper": {name: asdict(row) for name, row in TABLE_2.items()},
        "tried": {
            run: {"rate": one.training.rate, "dropout": one.model.dropout}
            for row in rows.values()
            for run, one in row.tried.items()
        },
        "rows": {name: of(row) for name, row in rows.items()},
        ENSEMBLE: {
            "seeds": _members(study),
            "unseen": numbers.get((f"unseen-{_ensemble(study)}", 1)),
        },
    }


def _drawing(study: Study, rows: Mapping[str, TriedRow], numbers: Figures) -> str:
    points = []
    for name, row in rows.items():
        for seed in study.seeds:
            trained, unseen = row.best_figures(numbers, seed), numbers.get((row.test_part, seed))
            if trained and unseen and "counted_flop" in trained:
                points.append((trained["counted_flop"], unseen["bleu_13a"], name))
    x, y = Axis("operations of training, counted", log=True), Axis("BLEU of unseen sentences")
    title = "Table 2: BLEU against the cost of training"
    return chart(title, x, y, [Series("models", tuple(points))])


TABLE_2_EXPERIMENT = Experiment("table2", prepare_text_once, _tasks, _table, _recipes)
"""The functions that make Table 2."""
