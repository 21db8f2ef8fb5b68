"""Table 2: all published systems, families on the same batches, an ensemble of base models."""

import json
from pathlib import Path

from regard.paper import BASE, TABLE_2, parameters
from regard.parts.kept import do_all, finished
from regard.recipe import Recipe
from regard.reproduce.scales import MINI_BASE, Mini
from regard.reproduce.table2 import (
    ENSEMBLE,
    SYSTEMS,
    TABLE_2_EXPERIMENT,
    family_recipes,
    translate_unseen,
)
from regard.reproduce.tables import Study, write_tables
from regard.reproduce.tried import DROPOUTS, RATES, best_run, tried_row
from regard.score.bleu import bleu
from regard.translation import load
from reproduce.tiny import TINY


def test_families_differ_from_base_in_the_model_only() -> None:
    recipes = family_recipes(MINI_BASE)
    assert set(filter(None, SYSTEMS.values())) == set(recipes)
    assert list(SYSTEMS) == list(TABLE_2)
    for row, recipe in recipes.items():
        assert recipe.tokenizer == MINI_BASE.tokenizer
        assert recipe.search == MINI_BASE.search
        if row != "big":
            assert recipe.training == MINI_BASE.training
            assert recipe.data == MINI_BASE.data.model_copy(update={"layout": recipe.data.layout})
            size = parameters(recipe.model, recipe.tokenizer.vocabulary)
            base = parameters(MINI_BASE.model, MINI_BASE.tokenizer.vocabulary)
            assert 0.5 < size / base < 2


def test_a_translated_row_and_an_ensemble(tmp_path: Path) -> None:
    """Two base models are trained; the other rows wait, and the table says so."""
    study = Study(TINY, tmp_path / "t", (1,))
    TABLE_2_EXPERIMENT.prepare(study)
    tasks = {(task.part, task.seed): task for task in TABLE_2_EXPERIMENT.tasks(study)}
    assert ("base", 2) in tasks  # for the ensemble
    wanted = [("base", 1), ("base", 2), ("unseen-base", 1), (f"unseen-{ENSEMBLE}-of-2", 1)]
    assert tasks["unseen-base", 1].work() is None  # not yet
    found = do_all([tasks[one] for one in reversed(wanted)], study.out)
    sources, references = TINY.unseen(study.out)
    assert len(sources) == 5
    runs = [study.out / "runs" / f"base-{seed}" for seed in (1, 2)]
    expected = bleu(load(*runs).translate(sources), [references])
    assert found[f"unseen-{ENSEMBLE}-of-2", 1]["bleu_13a"] == expected
    [table] = write_tables(study, [TABLE_2_EXPERIMENT])
    rows = {row[0]: row for row in table.rows}
    assert len(rows) == len(TABLE_2) + 1
    assert rows["GNMT + RL"][1:6] == ("24.6", "39.92", "2.3e+19", "1.4e+20", "recurrent")
    assert rows["Transformer (base model)"][-1] == "done"
    assert rows["Transformer (big)"][-1] == "seed 1: waiting"
    assert rows["MoE"][-1] == "–"
    assert {len(row) for row in table.rows} == {len(table.head)}
    assert finished(list(tasks.values()), study.out).keys() == set(wanted)
    more = Study(TINY, study.out, (1, 2, 3))  # an ensemble of three is another part
    assert f"unseen-{ENSEMBLE}-of-3" in {task.part for task in TABLE_2_EXPERIMENT.tasks(more)}
    write_tables(more, [TABLE_2_EXPERIMENT])


def test_the_ensemble_is_found_whatever_the_seeds(tmp_path: Path) -> None:
    study, part = Study(Mini(), tmp_path, (2, 3)), f"unseen-{ENSEMBLE}-of-2"
    assert (part, 1) in {(task.part, task.seed) for task in TABLE_2_EXPERIMENT.tasks(study)}
    figures = {(part, 1): {"bleu_13a": 30.0, "bleu_paper": 31.0}}
    row = TABLE_2_EXPERIMENT.table(study, figures).rows[-1]
    assert (row[6:9], row[-1]) == (("30.00", "–", "31.00"), "done")


def test_the_settings_of_a_translation_stay_as_they_are(tmp_path: Path) -> None:
    """If a version of regard changed them, nobody could continue a directory of an earlier one."""
    tasks = {task.part: task for task in TABLE_2_EXPERIMENT.tasks(Study(Mini(), tmp_path, (1,)))}
    text = "the built-in English-German corpus"
    mini = f"Mini(pairs=5000, validated=500, tested=500, name='mini', text='{text}', seeds=1)"
    assert tasks["unseen-base"].settings == f"{mini} (1,)"
    assert tasks[f"unseen-{ENSEMBLE}-of-2"].settings == f"{mini} (1, 2)"


def test_the_best_recipe_that_is_tried_translates_and_later_seeds_train_it(tmp_path: Path) -> None:
    row, study = "convolutional", Study(TINY, tmp_path / "t", (1, 2))
    TABLE_2_EXPERIMENT.prepare(study)
    tasks = {(task.part, task.seed): task for task in TABLE_2_EXPERIMENT.tasks(study)}
    runs = [row, f"{row}-rate-2", f"{row}-rate-0.5", f"{row}-dropout-0", f"{row}-dropout-0.2"]
    recipes = TABLE_2_EXPERIMENT.recipes(study)
    tried = [(recipes[run].training.rate, recipes[run].model.dropout) for run in runs]
    base = recipes["base"].training.rate
    assert tried == [(base, 0.1), (2 * base, 0.1), (base / 2, 0.1), (base, 0.0), (base, 0.2)]
    assert f"{row}, seed 1: waiting" in state_of_family(study)
    chosen = tasks[f"{row}-chosen", 2]
    do_all([tasks[run, 1] for run in runs[:-1]], study.out)
    assert chosen.work() is None  # one is still to be tried
    do_all([tasks[runs[-1], 1]], study.out)
    for run, development in zip(runs, (3.0, 4.0, 2.0, 5.0, 1.0), strict=True):
        write_bleu(study.out, run, development)
    assert state_of_family(study) == f"{row}-chosen, seed 2: waiting"
    do_all([chosen], study.out)
    assert state_of_family(study) == "translating"
    best = Recipe.read(study.out / "runs" / f"{row}-chosen-2" / "recipe.toml")
    assert best == recipes[runs[3]].but(seed=2)
    found = do_all([tasks[f"unseen-chosen-{row}", seed] for seed in study.seeds], study.out)
    sources, references = TINY.unseen(study.out)
    for seed, run in ((1, f"{runs[3]}-1"), (2, f"{row}-chosen-2")):
        translated = load(study.out / "runs" / run).translate(sources)
        one = found[f"unseen-chosen-{row}", seed]
        assert one["bleu_13a"] == bleu(translated, [references])
        assert one["bleu_paper"] >= 0
    [table] = write_tables(study, [TABLE_2_EXPERIMENT])
    first, second = (table.values["rows"][row][seed] for seed in ("1", "2"))
    assert first["unseen"] == found[f"unseen-chosen-{row}", 1]
    assert first["trained"] == first["tried"][runs[3]] != first["tried"][row]
    assert second["trained"] == second["tried"][f"{row}-chosen"]
    assert min(one["trained"]["counted_flop"] for one in (first, second)) > 0
    assert f"{row} {base:.3g} and 0.1: 3.00, {2 * base:.3g} and 0.1: 4.00" in table.notes[1]
    assert state_of_family(study) == "done"


def state_of_family(study: Study) -> str:
    """The last cell of the row with a convolutional model."""
    [table] = write_tables(study, [TABLE_2_EXPERIMENT])
    return {row[0]: row for row in table.rows}["ConvS2S"][-1]


def write_bleu(out: Path, run: str, bleu_of_development: float) -> None:
    """Change a kept figure of a finished run."""
    path = out / "parts" / f"{run}-1.json"
    kept = json.loads(path.read_text("utf-8"))
    kept["numbers"]["bleu"] = bleu_of_development
    path.write_text(json.dumps(kept))


def test_a_transformer_is_trained_with_one_recipe_and_later_seeds_of_others_too(
    tmp_path: Path,
) -> None:
    one, two = (Study(Mini(), tmp_path, tuple(range(1, seeds + 1))) for seeds in (1, 2))
    names = TABLE_2_EXPERIMENT.recipes(one)
    assert [name for name in names if name.startswith(("base", "big"))] == ["base", "big"]
    tried = 1 + len(RATES) + len(DROPOUTS)
    assert len(names) == 2 + 3 * tried
    trainings = [task for task in TABLE_2_EXPERIMENT.tasks(two) if "unseen" not in task.part]
    assert len(trainings) == 2 * 2 + 3 * (tried + 1)
    assert set(TABLE_2_EXPERIMENT.recipes(two)) == {task.part for task in trainings}


def test_a_row_waits_for_all_its_runs_and_a_tie_takes_the_first() -> None:
    assert best_run({"a": {"bleu": 1.0}, "b": None}) is None
    assert best_run({"a": {"bleu": 1.0}, "b": {"bleu": 1.0}}) == "a"
    assert best_run({"a": {"bleu": 0.0, "diverged": 1.0}, "b": {"bleu": 0.5}}) == "b"


def test_a_model_that_diverged_has_no_bleu(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    numbers = {"bleu": 0.0, "diverged": 1.0}
    (tmp_path / "parts/big-1.json").write_text(json.dumps({"settings": "", "numbers": numbers}))
    nothing = {"bleu_13a": 0, "bleu_paper": 0}
    assert translate_unseen(TINY, tmp_path, tried_row("big", BASE, 1), (1,)) == nothing
