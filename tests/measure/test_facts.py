"""What a run and a model show of their training."""

import json
import shutil
from pathlib import Path

import pytest

from cli.spoiling import reseal
from exchange.brief import brief_certificates  # noqa: F401
from regard.departures.case import Facts
from regard.errors import ModelError, RegardError
from regard.exchange.exporting import write_export
from regard.measure.facts import recipe_and_facts
from regard.recipe import Recipe
from regard.run.averaging import average_run
from run.copying import RECIPE, prepared, trained


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, its data in it, and a model averaged from it."""
    folder = tmp_path_factory.mktemp("facts")
    data = prepared(folder)
    (folder / "run").mkdir()
    shutil.copytree(data, folder / "run" / "data")
    trained(folder / "run", folder / "run" / "data", RECIPE)
    average_run(folder / "run", folder / "model", 2, print)
    return folder


def test_a_run_shows_how_it_was_trained(world: Path) -> None:
    recipe, facts = recipe_and_facts(world / "run")
    assert recipe == RECIPE
    manifest = json.loads((world / "run/data/manifest.json").read_text())
    assert facts == Facts(
        vocabulary=manifest["tokenizer"]["size"],
        pairs=manifest["counts"]["train"]["kept"],
        sample=1.0,
        held_out=5,
        mix=(),
        dtype="float32",
        device=facts.device,
        steps=11,
        averaged=(8, 10, 11),
        tuned=False,
        begins_with_model=False,
    )
    assert facts.device in ("cpu", "cuda", "cuda:0")


def test_a_model_shows_less(world: Path) -> None:
    recipe, facts = recipe_and_facts(world / "model")
    assert recipe == RECIPE
    assert (facts.steps, facts.averaged) == (11, (10, 11))
    assert facts.pairs is facts.dtype is facts.held_out is facts.begins_with_model is None


@pytest.mark.usefixtures("brief_certificates")
def test_an_exported_model_shows_no_vocabulary(world: Path, tmp_path: Path) -> None:
    """Its tokenizer.json is of another tool's format."""
    write_export("hf", world / "model", tmp_path / "hf")
    recipe, facts = recipe_and_facts(tmp_path / "hf")
    assert (recipe, facts.steps, facts.vocabulary) == (RECIPE, 11, None)


def test_an_unfinished_run_shows_the_steps_so_far(world: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    (run / "manifest.json").unlink()
    journal = (run / "journal.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in journal if json.loads(line).get("step", 0) <= 6]
    (run / "journal.jsonl").write_text("".join(kept) + '{"event": "st')
    (run / "from.json").write_text("{}")
    facts = recipe_and_facts(run)[1]
    assert (facts.steps, facts.averaged, facts.tuned) == (6, None, None)
    assert facts.begins_with_model is True


def test_files_to_validate_with_are_not_held_out(world: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    path = run / "data" / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["inputs"]["valid.source"] = [{"name": "dev.en", "bytes": 1, "sha256": ""}]
    manifest["mix"] = [2, 1]
    manifest["sample"] = 0.25
    path.write_text(json.dumps(manifest))
    facts = recipe_and_facts(run)[1]
    assert (facts.held_out, facts.sample, facts.mix) == (0, 0.25, (2, 1))


def test_a_recipe_of_an_older_version_is_read(world: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    (run / "manifest.json").unlink()
    (run / "recipe.toml").write_text("[model]\nlayers = 2\n")
    assert recipe_and_facts(run)[0] == Recipe().but(layers=2)


@pytest.mark.parametrize("harm", ["averaged", "journal", "data"])
def test_damage_is_refused(world: Path, tmp_path: Path, harm: str) -> None:
    run = Path(shutil.copytree(world / "run", tmp_path / "run"))
    if harm == "averaged":
        reseal(run, averaged=["one"])
    elif harm == "journal":
        (run / "journal.jsonl").write_text('{"event": "start", "pairs": "many"}\n')
    else:
        manifest = json.loads((run / "data" / "manifest.json").read_text())
        manifest["counts"]["train"]["kept"] = None
        (run / "data" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelError, match="its manifest or its journal is damaged"):
        recipe_and_facts(run)


def test_what_is_no_run_is_refused(world: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"neither a run nor a model.*or a recipe"):
        recipe_and_facts(tmp_path)
    with pytest.raises(RegardError, match="is prepared data"):
        recipe_and_facts(world / "data")
