"""Table 4: parsers, by F1 of labelled brackets on test sentences (§6.3)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from regard.data.tree_files import Treebank
from regard.files.locks import locked
from regard.measure.validation import compare_trees
from regard.paper import TABLE_4
from regard.parsing import load
from regard.parts.kept import Figures, Measured, Task, numbers_of
from regard.parts.settings import settings_of
from regard.recipe import Recipe
from regard.reproduce.chart import Axis, Series, chart
from regard.reproduce.parsers import (
    BERKELEY,
    ParserRow,
    make_trees,
    parser_rows,
    refuse_without_trees,
)
from regard.reproduce.prepared import begin_directory
from regard.reproduce.rows import diverged_figures, run_of, state_of, train_row
from regard.reproduce.scales import Scale
from regard.reproduce.tables import NONE, Experiment, GrowingTable, Study, cell
from regard.trees.penn import with_tags_of, without_blanks

TEACHING_SEED = 1
"""The seed of each teacher, a parser that writes the silver trees for other parsers."""


def _tasks(study: Study) -> list[Task]:
    """One task for each row and seed; teachers are also trained with TEACHING_SEED."""
    rows = parser_rows(study.scale, study.out)
    wanted = [(row, seed) for seed in study.seeds for row in rows.values()]
    if TEACHING_SEED not in study.seeds:
        teachers = dict.fromkeys(row.teacher for row in rows.values() if row.teacher)
        wanted = [*((rows[name], TEACHING_SEED) for name in teachers), *wanted]
    return [
        Task(
            f"parser-{row.name}",
            seed,
            settings_of(row.recipe),
            partial(train_parser, study.scale, study.out, row.name, seed),
        )
        for row, seed in wanted
    ]


def train_parser(scale: Scale, out: Path, name: str, seed: int) -> Measured | None:
    """Train a parser, and score its trees of the test sentences by EVALB; return the figures.

    The parser is given the words of the gold trees. The parser's row may name a teacher: another
    parser, which writes silver trees for this parser to learn from. If the teacher is not trained
    yet, the result is None. If the training of the teacher or of this parser diverged, nothing is
    scored: the figures are `diverged_figures`, and `left_out` is 0.
    """
    row = parser_rows(scale, out)[name]
    if row.teacher:
        taught = numbers_of(out, f"parser-{row.teacher}", TEACHING_SEED)
        if taught is None:
            return None
        if "diverged" in taught:
            return {**diverged_figures(row.recipe), "left_out": 0.0}
    data = out / f"data-{name}"
    with locked(out / f".data-{name}.lock"):
        make_trees(row, out, TEACHING_SEED)
        if not data.exists():
            row.files.prepare(data, row.recipe)
    run = run_of(out, f"parser-{name}", seed)
    trained = train_row(run, data, row.recipe.but(seed=seed))
    if "diverged" in trained:
        return {**trained, "left_out": 0.0}
    return {**trained, **_tested(run, row)}


def _tested(run: Path, row: ParserRow) -> Measured:
    gold = [tree for tree in Treebank([row.test]).trees() if tree is not None]
    parser = load(run)
    if row.beam:
        parser.recipe = parser.recipe.but(beam=row.beam)
    found = parser.parse(without_blanks(tree).words() for tree in gold)
    if parser.form == "normalised":
        found = list(map(with_tags_of, found, gold))
    figures = compare_trees(found, gold).figures()
    return {
        "f1": figures["f"] if figures["recall"] else 0.0,
        "tagging_accuracy": figures["tagging_accuracy"],
        "sentences": float(len(gold)),
        "left_out": float(figures["error"]),
    }


def _table(study: Study, numbers: Figures) -> GrowingTable:
    seeds, rows = study.seeds, parser_rows(study.scale, study.out)
    blanks = (NONE,) * (1 + len(seeds))
    printed = [
        (one.name, f"{one.training}, 40,000 gold trees", "WSJ section 23", f"{one.f1:.1f}", *blanks,
         "printed") for one in TABLE_4
    ]  # fmt: skip
    given = [
        ("Berkeley parser", test.split("/")[0], test, f"{f1:.1f}", *blanks, "given")
        for test, f1 in BERKELEY.items()
        if any(test == _test_name(row) for row in rows.values())
    ]
    ours = [_ours(study, row, numbers) for row in rows.values()]
    return GrowingTable(
        f"Table 4: parsing, scale {study.scale.name}",
        ("parser", "trained on", "tested on", "F1 in the paper", *(f"F1, seed {s}" for s in seeds),
         "tags, %", "state"),
        (*printed, *given, *ours),
        _notes(study),
        _values(study, rows, numbers),
        _drawing(study, rows, numbers),
    )  # fmt: skip


def _ours(study: Study, row: ParserRow, numbers: Figures) -> tuple[str, ...]:
    part = f"parser-{row.name}"
    found = {seed: numbers.get((part, seed)) for seed in study.seeds}
    scores = (cell(one["f1"] if one else None, 1) for one in found.values())
    first = next((one for one in found.values() if one), {})
    return (
        f"Transformer, {row.recipe.model.depth} layers, here",
        row.regime,
        _test_name(row),
        NONE,
        *scores,
        cell(first.get("tagging_accuracy"), 1),
        state_of(study.out, part, found, row.recipe.training.steps),
    )


def _test_name(row: ParserRow) -> str:
    return f"{row.test.parent.name}/{row.test.stem}"


def _notes(study: Study) -> tuple[str, ...]:
    treebank = "built-in trees" if study.scale.name == "mini" else "smaller treebanks"
    apart = (
        f"The parsers here learn from {treebank}: their F1 is to be compared with each other, not "
        "with the printed figures. "
    )
    return (
        f"{'' if study.scale.name == 'paper' else apart}F1 is EVALB's, of labelled brackets, by "
        "COLLINS.prm, for all lengths, without the bracket around a tree.",
        "The figures of the Berkeley parser, where they stand, are given values: nothing here runs "
        "it, and its output was not kept.",
    )


def _values(study: Study, rows: dict[str, ParserRow], numbers: Figures) -> dict[str, Any]:
    return {
        "scale": study.scale.name,
        "seeds": list(study.seeds),
        "paper": [{"name": r.name, "training": r.training, "f1": r.f1} for r in TABLE_4],
        "rows": {
            name: {str(seed): numbers.get((f"parser-{name}", seed)) for seed in study.seeds}
            for name in rows
        },
    }


def _drawing(study: Study, rows: dict[str, ParserRow], numbers: Figures) -> str:
    points = [
        (float(place), one["f1"], name)
        for place, name in enumerate(rows, 1)
        for seed in study.seeds
        if (one := numbers.get((f"parser-{name}", seed)))
    ]
    title = "Table 4: F1 of the parsers here"
    return chart(title, Axis("row"), Axis("F1"), [Series("parsers", tuple(points))])


def _recipes(study: Study) -> dict[str, Recipe]:
    rows = parser_rows(study.scale, study.out)
    return {f"parser-{name}": row.recipe for name, row in rows.items()}


def _prepare_trees(study: Study) -> None:
    """Make the directory; raise DataError if files of trees are missing.

    Raises the errors of `begin_directory`, too. Built-in trees may be missing: tasks write them.
    """
    refuse_without_trees(study.scale, parser_rows(study.scale, study.out).values())
    begin_directory(study)


TABLE_4_EXPERIMENT = Experiment("table4", _prepare_trees, _tasks, _table, _recipes)
"""The functions that make Table 4."""
