"""Scale small: real text, by a recipe that is chosen once and kept."""

from pathlib import Path
from typing import Any

import pytest

from regard.budget.choice import Choice
from regard.corpus import write_corpus
from regard.errors import DataError
from regard.paper import BASE
from regard.presets import SMALL
from regard.reproduce import small
from regard.reproduce.prepared import begin_directory, prepare_text_once
from regard.reproduce.registry import scale_named
from regard.reproduce.scales import Mini, data_in
from regard.reproduce.small import Small
from regard.reproduce.table2 import TABLE_2_EXPERIMENT
from regard.reproduce.tables import Study


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of text with the names of Multi30k; the rule of --time chooses `SMALL` by Muon."""
    for name, seed, count in (("train", 1, 200), ("val", 2, 7), ("test_2016_flickr", 3, 5)):
        write_corpus(tmp_path / "data" / "multi30k" / name, seed, count)
    monkeypatch.setenv("REGARD_DATA", str(tmp_path / "data"))

    chosen: list[float] = []

    def choose(text: Any, minutes: float, asked: tuple[str, ...]) -> Choice:
        assert minutes not in chosen  # a second choice takes time, and may be another one
        chosen.append(minutes)
        recipe = SMALL.but(vocabulary=400, minutes=minutes, best="loss", tune=True, steps=10**6)
        recipe = recipe.but(optimizer="muon", dropout=0.2).set(*asked)
        return Choice(recipe, 0.0, int(100 * minutes), 0.0, 0.0, 0.0, 0.0)

    monkeypatch.setattr(small, "choose", choose)
    return tmp_path


def test_the_recipe_is_chosen_once(folder: Path) -> None:
    out = folder / "out"
    first, second = (Study(scale, out, (1,)) for scale in (Small(minutes=3), Small()))
    assert TABLE_2_EXPERIMENT.tasks(first) and TABLE_2_EXPERIMENT.recipes(first)  # for a plan
    prepare_text_once(first)
    recipe = Small().base(out)  # with other minutes, it stays
    assert (recipe.training.steps, recipe.training.minutes) == (300, 0)
    assert recipe.training.warmup_steps == 150
    assert recipe.training.optimizer == "adam"
    assert recipe.model.dropout == BASE.model.dropout  # 0.2 is that of row D2
    assert (recipe.training.best, recipe.training.average) == ("last", BASE.training.average)
    assert recipe.training.validate_sentences == 7  # all of the development set
    assert (recipe.model.heads, recipe.model.d_k) == (8, SMALL.model.d_model // 8)
    assert (data_in(out) / "tokenizer.json").exists()
    tasks = [TABLE_2_EXPERIMENT.tasks(study) for study in (first, second)]
    assert [task.settings for task in tasks[0]] == [task.settings for task in tasks[1]]
    sources, references = Small().unseen(out)
    assert len(sources) == len(references) == 5


def test_french(folder: Path) -> None:
    multi30k = folder / "data" / "multi30k"
    for path in multi30k.glob("*.de"):
        path.rename(path.with_suffix(".fr"))
    french = scale_named("small-fr", 3)
    study = Study(french, folder / "out", (1,))
    prepare_text_once(study)
    target = (data_in(study.out) / "valid.target.txt").read_text("utf-8").split("\n")[:-1]
    assert target == (multi30k / "val.fr").read_text("utf-8").split("\n")[:-1]
    assert french.base(study.out).training.steps == 300
    sources, references = french.unseen(study.out)
    assert len(sources) == len(references) == 5
    with pytest.raises(DataError, match="was begun at scale small-fr, not small"):
        prepare_text_once(Study(Small(), study.out, (1,)))
    [task] = (one for one in TABLE_2_EXPERIMENT.tasks(study) if one.part == "unseen-base")
    assert task.settings.endswith("text='Multi30k, English to French', seeds=1) (1,)")


def test_text_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the refusal, another scale may be chosen in the same directory."""
    monkeypatch.delenv("REGARD_DATA", raising=False)
    with pytest.raises(DataError, match=r"small needs REGARD_DATA.*choose --scale mini"):
        prepare_text_once(Study(Small(), tmp_path / "out", (1,)))
    begin_directory(Study(Mini(), tmp_path / "out", (1,)))
