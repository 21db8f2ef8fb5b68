"""A model knows which characters its sources had, and rewrites those that only targets had."""

from pathlib import Path

import pytest

from cli.spoiling import reseal
from regard.data.characters import characters_in
from regard.data.prepare import prepare_text
from regard.run.averaging import average_run
from regard.run.model_directory import open_model
from regard.translation import load
from run.copying import RECIPE, strings, trained
from run.test_finetuning import begun

RECIPE = RECIPE.but(vocabulary=400)
LINE = "„é” “1” – 2"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("characters")
    digits = strings(97, seed=1)
    (folder / "source").write_text("".join(f'"{line}" é –\n' for line in digits), "utf-8")
    (folder / "target").write_text("".join(f"„{line}“ ä –\n" for line in digits), "utf-8")
    prepare_text([folder / "source"], [folder / "target"], folder / "data", RECIPE)
    return folder / "data"


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run") / "run"
    trained(directory, data, RECIPE)
    return directory


def test_a_model_knows_the_characters_of_its_sources(run: Path, tmp_path: Path) -> None:
    assert characters_in(open_model(run).manifest) == "é–"
    assert load(run).plain(LINE) == '"é" "1" – 2'
    average_run(run, tmp_path / "mean", 2, pytest.fail)
    assert load(tmp_path / "mean").plain(LINE) == '"é" "1" – 2'


@pytest.mark.parametrize("written", [None, 5])
def test_a_model_without_them_goes_by_its_vocabulary(
    run: Path, data: Path, tmp_path: Path, written: object
) -> None:
    trained(tmp_path / "run", data, RECIPE)
    reseal(tmp_path / "run", source_characters=written)
    assert load(tmp_path / "run").plain(LINE) == '„é" “1" – 2'


def test_a_run_from_another_model_does_not_tell_them(run: Path, data: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(steps=3, average=1)
    begun(tmp_path / "run", data, run, recipe)
    trained(tmp_path / "run", data, recipe)
    assert characters_in(open_model(tmp_path / "run").manifest) is None
