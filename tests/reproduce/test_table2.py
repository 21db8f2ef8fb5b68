"""Table 2: all published systems, families on the same batches, an ensemble of base models."""

import json
from pathlib import Path

from regard.paper import TABLE_2, parameters
from regard.reproduce.rates import FACTORS, best_run
from regard.reproduce.scales import MINI_BASE, Mini
from regard.reproduce.table2 import (
    ENSEMBLE,
    SYSTEMS,
    TABLE_2_EXPERIMENT,
    family_recipes,
    translate_unseen,
)
from regard.reproduce.tables import Study, write_tables
from regard.score.bleu import bleu
from regard.study.kept import do_all, finished
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


def test_the_settings_of_a_translation_stay_as_they_are(tmp_path: Path) -> None:
    """If a version of regard changed them, nobody could continue a directory of an earlier one."""
    tasks = {task.part: task for task in TABLE_2_EXPERIMENT.tasks(Study(Mini(), tmp_path, (1,)))}
    text = "the built-in English-German corpus"
    mini = f"Mini(pairs=5000, validated=500, tested=500, name='mini', text='{text}', seeds=1)"
    assert tasks["unseen-base"].settings == f"{mini} (1,)"
    assert tasks[f"unseen-{ENSEMBLE}-of-2"].settings == f"{mini} (1, 2)"


def test_the_best_of_three_learning_rates_translates(tmp_path: Path) -> None:
    row, study = "convolutional", Study(TINY, tmp_path / "t", (1,))
    TABLE_2_EXPERIMENT.prepare(study)
    tasks = {task.part: task for task in TABLE_2_EXPERIMENT.tasks(study) if task.seed == 1}
    runs = [row, f"{row}-rate-0.5", f"{row}-rate-0.25"]
    recipes = TABLE_2_EXPERIMENT.recipes(study)
    base = recipes["base"].training.rate
    assert [recipes[run].training.rate for run in runs] == [base, base / 2, base / 4]
    assert f"rate {base:.3g}, seed 1: waiting" in state_of_family(study)
    do_all([tasks[run] for run in runs], study.out)
    assert state_of_family(study) == "translating"
    write_bleu(study.out, runs[0], 3.0)
    write_bleu(study.out, runs[1], 5.0)
    write_bleu(study.out, runs[2], 4.0)
    found = do_all([tasks[f"unseen-best-{row}"]], study.out)[f"unseen-best-{row}", 1]
    sources, references = TINY.unseen(study.out)
    translated = load(study.out / "runs" / f"{runs[1]}-1").translate(sources)
    assert found["bleu_13a"] == bleu(translated, [references])
    [table] = write_tables(study, [TABLE_2_EXPERIMENT])
    one = table.values["rows"][row]["1"]
    assert one["unseen"] == found
    assert found["bleu_paper"] >= 0
    assert one["trained"]["counted_flop"] > 0
    assert one["trained"] == one["tried"][runs[1]] != one["tried"][row]
    assert f"{row} {base:.3g}: 3.00, {base / 2:.3g}: 5.00, {base / 4:.3g}: 4.00" in table.notes[1]
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


def test_a_transformer_keeps_its_rate(tmp_path: Path) -> None:
    names = TABLE_2_EXPERIMENT.recipes(Study(Mini(), tmp_path, (1,)))
    assert [name for name in names if name.startswith(("base", "big"))] == ["base", "big"]
    assert len(names) == 2 + 3 * len(FACTORS)


def test_a_row_waits_for_all_its_rates_and_a_tie_takes_the_first() -> None:
    assert best_run({"a": {"bleu": 1.0}, "b": None}) is None
    assert best_run({"a": {"bleu": 1.0}, "b": {"bleu": 1.0}}) == "a"
    assert best_run({"a": {"bleu": 0.0, "diverged": 1.0}, "b": {"bleu": 0.5}}) == "b"


def test_a_model_that_diverged_has_no_bleu(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    numbers = {"bleu": 0.0, "diverged": 1.0}
    (tmp_path / "parts/big-1.json").write_text(json.dumps({"settings": "", "numbers": numbers}))
    nothing = {"bleu_13a": 0, "bleu_paper": 0}
    assert translate_unseen(TINY, tmp_path, ["big"], (1,)) == nothing
