"""A run may begin with a model's weights, and with nothing else of it."""

import shutil
from pathlib import Path

import pytest
import torch

from cli.spoiling import reseal
from regard.errors import ModelError, RegardError
from regard.recipe import Recipe
from regard.run.checkpoints import newest
from regard.run.finetuning import (
    begin_from_model,
    keep_origin,
    open_origin,
    refuse_other_shape,
)
from regard.run.journal import read_journal
from regard.run.model_directory import open_model
from regard.run.run import Run
from run.copying import RECIPE, prepared, strings, trained


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    directory = tmp_path_factory.mktemp("model") / "run"
    trained(directory, data)
    return directory


def begun(directory: Path, data: Path, model: Path, recipe: Recipe = RECIPE) -> None:
    keep_origin(model, directory)
    run = Run(directory, recipe, data)
    try:
        begin_from_model(run)
    finally:
        run.close()


def test_the_first_checkpoint_has_the_weights_of_the_model_and_a_fresh_optimizer(
    data: Path, model: Path, tmp_path: Path
) -> None:
    recipe = RECIPE.but(dropout=0.3, steps=5, seed=7)
    begun(tmp_path / "run", data, model, recipe)
    expected = dict(open_model(model).network.named_parameters())
    [first] = newest(tmp_path / "run" / "checkpoints", 2, pytest.fail)
    assert first.step == 0
    weights = first.weights()
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in weights)
    run = Run(tmp_path / "run", recipe, data)  # of a command that does not name the model again
    training = run.resume_or_start()
    run.close()
    assert training.state.step == 0
    assert not any(t.any() for t in training.optimizer.state().values())
    for name, parameter in training.model.named_parameters():
        assert torch.equal(parameter, expected[name])


def test_it_trains_to_its_end_and_the_same_command_goes_on(
    data: Path, model: Path, tmp_path: Path
) -> None:
    recipe = RECIPE.but(steps=5, average=2, keep=2)
    begun(tmp_path / "run", data, model, recipe)
    trained(tmp_path / "run", data, recipe)
    begun(tmp_path / "run", data, model, recipe)  # has its own checkpoints: nothing is begun again
    trained(tmp_path / "run", data, recipe)
    assert open_model(tmp_path / "run").manifest["averaged"] == [4, 5]
    events = [record["event"] for record in read_journal(tmp_path / "run" / "journal.jsonl")]
    assert events.count("begin") == 1


def test_before_the_first_step_the_optimizer_may_change(
    data: Path, model: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    begun(run, data, model)
    with pytest.raises(ZeroDivisionError):
        trained(run, data, RECIPE.but(optimizer="muon"), listeners=(lambda _: 1 // 0,))
    trained(run, data, RECIPE, accept_changes=True)
    assert open_model(run).manifest["step"] == RECIPE.training.steps


def test_what_does_not_fit_the_model_is_refused(data: Path, model: Path, tmp_path: Path) -> None:
    shape = r"another shape \(model\.heads: 2 -> 4"
    with pytest.raises(ModelError, match=shape):
        begun(tmp_path / "heads", data, model, RECIPE.but(heads=4))
    with pytest.raises(ModelError, match=shape):
        refuse_other_shape(model, open_model(model), RECIPE.but(heads=4))
    refuse_other_shape(model, open_model(model), RECIPE.but(dropout=0.5, max_positions=4000))
    other = prepared(tmp_path, RECIPE.but(vocabulary=301), strings(97, seed=2))
    with pytest.raises(ModelError, match=r"another tokenizer than .*--tokenizer .*tokenizer\.json"):
        begun(tmp_path / "tokenizer", other, model)


def test_a_run_stays_with_the_model_it_began_with(data: Path, model: Path, tmp_path: Path) -> None:
    run, other = tmp_path / "run", Path(shutil.copytree(model, tmp_path / "other"))
    reseal(other, step=12)
    with pytest.raises(RegardError, match="is the model that --from names: choose another --out"):
        open_origin(model, model)
    with pytest.raises(RegardError, match="was begun without --from: choose another --out"):
        keep_origin(other, Path(shutil.copytree(model, tmp_path / "without")))
    keep_origin(model, run)
    keep_origin(model, run)
    with pytest.raises(RegardError, match=r"another --from, .*: leave out --from to continue, or"):
        keep_origin(other, run)
    assert open_origin(model, run).manifest == open_model(model).manifest
    (run / "checkpoints/step-0").mkdir(parents=True)
    with pytest.raises(RegardError, match=r"gone: is gone, but .*run has its weights: leave out -"):
        open_origin(tmp_path / "gone", run)
    with pytest.raises(ModelError, match="gone: no such model directory"):
        open_origin(tmp_path / "gone", tmp_path / "new")
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="file/run: cannot write: Not a directory"):
        keep_origin(model, tmp_path / "file/run")
    (run / "from.json").write_text("{}")
    with pytest.raises(ModelError, match=r"from\.json: is damaged"):
        keep_origin(model, run)


def test_whoever_goes_on_before_the_first_checkpoint_begins_with_the_model_too(
    data: Path, model: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(model, tmp_path / "model"))
    keep_origin(directory, tmp_path / "run")
    run = Run(tmp_path / "run", RECIPE, data)
    reseal(directory, step=12)
    with pytest.raises(ModelError, match=r"is no longer the model that .* begins with"):
        begin_from_model(run)
    shutil.rmtree(directory)
    with pytest.raises(ModelError, match="no such model directory"):
        begin_from_model(run)
    shutil.copytree(model, directory)
    begin_from_model(run)
    run.close()
    assert newest(tmp_path / "run" / "checkpoints", 1, pytest.fail)[0].step == 0
