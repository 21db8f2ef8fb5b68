"""A run directory: one owner, one recipe, and nothing in it that a kill could leave unusable."""

import errno
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.spoiling import reseal
from regard.cost import flop_of_tokens
from regard.data.pairs import Pairs
from regard.data.prepare import prepare_text
from regard.errors import DataError, ModelError, RecipeError, RegardError, TrainingError
from regard.files.tensors import read_tensors
from regard.run.averaging import average_run, average_weights
from regard.run.beginning import begun
from regard.run.checkpoints import Checkpoint, newest, paths
from regard.run.journal import read_journal
from regard.run.model_directory import open_model
from regard.run.run import Run
from regard.run.state import TrainingState
from run.copying import RECIPE, prepared, strings, trained

SHORT = RECIPE.but(steps=6)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """A run of six steps; whoever changes it, changes a copy."""
    out = tmp_path_factory.mktemp("finished") / "run"
    trained(out, data, SHORT)
    return out


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "copy"))


def content(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def steps(run: Path) -> list[int]:
    return [int(path.name.removeprefix("step-")) for path in paths(run / "checkpoints")]


def test_the_final_model_is_the_mean_of_the_last_checkpoints(finished: Path) -> None:
    assert steps(finished) == [2, 4, 6]
    each = [
        read_tensors(finished / "checkpoints" / f"step-{step}" / "weights.safetensors")
        for step in (2, 4, 6)
    ]
    model = open_model(finished)
    for name, parameter in model.network.named_parameters():
        mean = (each[0][name].double() + each[1][name] + each[2][name]) / 3
        torch.testing.assert_close(parameter.detach(), mean.float(), atol=1e-7, rtol=0)
    assert model.manifest["step"] == 6
    assert model.manifest["averaged"] == [2, 4, 6]
    assert model.recipe == SHORT


def test_a_run_ends_with_its_result_and_what_it_cost(
    tmp_path: Path, data: Path, finished: Path
) -> None:
    pairs = Pairs.open(data, "train")
    validate = lambda _: {"loss": 2.0, "accuracy": 17.0, "samples": []}  # noqa: E731
    trained(tmp_path / "run", data, SHORT.but(validate_every=2), validate)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["last_validation"].pop("time") > 0
    assert result.pop("last_validation") == {"step": 6, "loss": 2.0, "accuracy": 17.0}
    last = read_journal(tmp_path / "run" / "journal.jsonl")[-1]
    assert last.pop("event") == "finish"
    del last["time"]
    assert last == result
    manifest = open_model(tmp_path / "run").manifest
    assert manifest["cost"] == result["cost"]
    cost = result["cost"]
    speed = cost["single_precision_flop_per_second"]
    assert cost["estimated_flop"] == cost["seconds"] * cost["devices"] * speed > 0
    assert (cost["devices"], cost["seconds"]) == (1, result["seconds"])
    tokens = newest(tmp_path / "run" / "checkpoints", 1, pytest.fail)[0].manifest["state"]
    assert cost["counted_flop"] == flop_of_tokens(
        SHORT.model,
        open_model(finished).tokenizer.size,
        pairs.source_lengths,
        pairs.target_lengths,
        tokens["source_tokens"],
        tokens["target_tokens"],
    )
    without = json.loads((finished / "result.json").read_text())
    assert without["last_validation"] == {}


def test_averaging_a_run_anew_keeps_the_newest_step(finished: Path, tmp_path: Path) -> None:
    assert average_run(finished, tmp_path / "new" / "two", 2, pytest.fail) == [4, 6]
    two = open_model(tmp_path / "new" / "two")
    assert (two.manifest["step"], two.manifest["averaged"]) == (6, [4, 6])
    expected = average_weights(newest(finished / "checkpoints", 2, pytest.fail))
    for name, parameter in two.network.named_parameters():
        assert torch.equal(parameter, expected[name])
    average_run(finished, tmp_path / "three", 3, pytest.fail)
    assert (
        content(tmp_path / "three")["model.safetensors"] == content(finished)["model.safetensors"]
    )


def test_a_checkpoint_that_training_removes_meanwhile_is_not_missed(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest, newer = copy / "checkpoints" / "step-2", copy / "checkpoints" / "step-8"
    real = Checkpoint.weights

    def removed(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
        if oldest.exists():
            shutil.copytree(copy / "checkpoints" / "step-6", newer)
            reseal(newer, step=8)
            shutil.rmtree(oldest)
        return real(checkpoint)

    monkeypatch.setattr(Checkpoint, "weights", removed)
    assert average_run(copy, tmp_path / "out", 3, pytest.fail) == [4, 6, 8]


def test_what_cannot_be_averaged_is_refused(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not a run directory"):
        average_run(tmp_path / "missing", tmp_path / "out", 1, pytest.fail)
    with pytest.raises(RegardError, match="exists already"):
        average_run(copy, copy, 1, pytest.fail)
    with pytest.raises(ModelError, match="has 3 complete checkpoints, not 5: give --last 3"):
        average_run(copy, tmp_path / "out", 5, pytest.fail)
    shutil.rmtree(copy / "checkpoints")
    with pytest.raises(ModelError, match="no checkpoint to average"):
        average_run(copy, tmp_path / "out", 1, pytest.fail)
    assert not (tmp_path / "out").exists()


def test_only_one_process_trains_in_a_directory(tmp_path: Path, data: Path) -> None:
    first = Run(tmp_path / "run", RECIPE, data)
    with pytest.raises(TrainingError, match="another process is training here"):
        Run(tmp_path / "run", RECIPE, data)
    first.close()
    Run(tmp_path / "run", RECIPE, data).close()


def test_a_lock_that_stays_when_its_machine_is_lost_goes_with_its_file(
    tmp_path: Path, data: Path
) -> None:
    lost = Run(tmp_path / "run", RECIPE, data)
    (tmp_path / "run" / ".lock").unlink()
    Run(tmp_path / "run", RECIPE, data).close()
    lost.close()


def test_where_a_file_system_has_no_locks_a_run_begins_with_a_warning(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    said: list[str] = []
    Run(tmp_path / "run", RECIPE, data, warn=said.append).close()
    assert said == [
        f"{tmp_path / 'run'}: cannot be locked (No locks available): make sure that no other "
        "process trains here"
    ]


def test_a_healthy_checkpoint_that_cannot_be_read_is_not_passed_over(
    copy: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To go on from the one before would remove it."""
    before, opened, newest_one = content(copy), os.open, copy / "checkpoints" / "step-6"

    def failing(path: Path, *others: int, **more: Any) -> int:
        if Path(path) == newest_one / "weights.safetensors":
            raise OSError(errno.EIO, "Input/output error")
        return opened(path, *others, **more)

    monkeypatch.setattr("os.open", failing)
    with pytest.raises(ModelError, match=rf"Input/output error; or remove {newest_one} to do"):
        trained(copy, data, SHORT)
    monkeypatch.undo()
    assert content(copy) == before
    reseal(newest_one, format=2)  # of a later version
    with pytest.raises(ModelError, match=r"is of format 2, .*; or remove"):
        trained(copy, data, SHORT)
    assert steps(copy) == [2, 4, 6]


def test_a_finished_model_without_checkpoints_is_not_trained_anew(copy: Path, data: Path) -> None:
    shutil.rmtree(copy / "checkpoints")
    before = content(copy)
    with pytest.raises(TrainingError, match="holds a finished model and no checkpoints: choose"):
        trained(copy, data, SHORT)
    assert content(copy) == before
    (copy / "model.safetensors").unlink()
    trained(copy, data, SHORT)
    assert steps(copy) == [2, 4, 6]


def test_fewer_checkpoints_than_are_to_be_averaged_are_told(tmp_path: Path, data: Path) -> None:
    said: list[str] = []
    trained(tmp_path / "run", data, SHORT.but(steps=3), warn=said.append)
    assert [line.partition(": ")[2] for line in said] == [
        "the model is the average of 2, not 3, checkpoints: no more were saved "
        "(training.save_every, training.save_minutes)"
    ]


def test_a_finished_model_outlives_the_checkpoints_it_was_made_from(copy: Path, data: Path) -> None:
    before, said = content(copy), list[str]()
    for step in (2, 4):
        shutil.rmtree(copy / f"checkpoints/step-{step}")
    trained(copy, data, SHORT, warn=said.append)
    assert said == [f"{copy}: some checkpoints that the model was made from are gone: it stays"]
    assert (copy / "model.safetensors").read_bytes() == before["model.safetensors"]
    assert open_model(copy).manifest["averaged"] == [2, 4, 6]
    trained(copy, data, SHORT.but(steps=8), accept_changes=True)  # which makes another model
    assert open_model(copy).manifest["averaged"] == [6, 8]


def test_an_older_recipe_file_that_means_the_same_is_left_as_it_is(copy: Path, data: Path) -> None:
    path = copy / "recipe.toml"
    older = path.read_text().replace("patience = 0\n", "")  # before there was such a field
    path.write_text(older)
    run = Run(copy, SHORT, data)
    run.resume_or_start()
    run.close()
    assert path.read_text() == older
    assert (copy / "manifest.json").exists()


def test_a_run_that_has_not_ended_keeps_the_search_that_it_was_given_last(
    tmp_path: Path, data: Path
) -> None:
    for recipe in (SHORT, SHORT.but(beam=2)):
        run = Run(tmp_path / "run", recipe, data)
        run.resume_or_start()
        run.close()
        assert begun(tmp_path / "run") == recipe


def test_another_recipe_is_refused_naming_what_differs(copy: Path, data: Path) -> None:
    before = content(copy)
    with pytest.raises(RecipeError, match=r"training\.warmup_steps: 7 -> 5") as refusal:
        Run(copy, SHORT.but(warmup_steps=5), data)
    assert "--accept-changes" in str(refusal.value)
    assert content(copy) == before


def test_a_finished_run_is_extended_knowingly(copy: Path, data: Path) -> None:
    trained(copy, data, SHORT.but(steps=8), accept_changes=True)
    assert steps(copy) == [4, 6, 8]
    assert open_model(copy).manifest["averaged"] == [4, 6, 8]
    assert begun(copy) == SHORT.but(steps=8)
    assert [r["step"] for r in read_journal(copy / "journal.jsonl") if r["event"] == "step"] == [
        *range(1, 9)
    ]


def test_muon_continues_a_run_of_adam_and_adam_none_of_muon(copy: Path, data: Path) -> None:
    longer = SHORT.but(steps=8)
    trained(copy, data, longer.but(optimizer="muon"), accept_changes=True)
    before = content(copy)
    with pytest.raises(RecipeError, match=r"learned by Muon.* keep .*muon, or .* another --out"):
        trained(copy, data, longer.but(optimizer="adam", steps=9), accept_changes=True)
    assert content(copy) == before
    recipe = copy / "recipe.toml"  # it may be edited, or be written before the first step by Muon
    recipe.write_text(recipe.read_text().replace('optimizer = "muon"', 'optimizer = "adam"'))
    with pytest.raises(RecipeError, match="learned by Muon"):
        trained(copy, data, longer.but(optimizer="adam"))


def test_a_kill_before_the_first_step_by_muon_leaves_the_run_to_adam(
    copy: Path, data: Path
) -> None:
    longer = SHORT.but(steps=8)
    with pytest.raises(ZeroDivisionError):
        muon, listeners = longer.but(optimizer="muon"), (lambda _: 1 // 0,)
        trained(copy, data, muon, accept_changes=True, listeners=listeners)
    assert begun(copy) == muon
    trained(copy, data, longer, accept_changes=True)
    assert open_model(copy).manifest["step"] == 8


def test_a_validation_that_is_no_number_is_never_the_best() -> None:
    for number in (math.nan, math.inf):
        state = TrainingState()
        for step, loss in enumerate((number, 2.0, number, 1.0, 1.0), 1):
            state.step = step
            state.judge({"loss": loss}, "last")
            assert math.isfinite(state.lowest_loss)
            assert state.no_better == (step in (1, 3, 5))
        assert (state.lowest_loss, state.best_step) == (1.0, 4)


def test_no_validation_is_better_than_a_perfect_one() -> None:
    state = TrainingState()
    for step, bleu in enumerate((100.0, 99.0, 100.0), 1):
        state.step = step
        state.judge({"bleu": bleu}, "bleu")
    assert (state.best_step, state.no_better) == (1, 2)


def test_validations_by_another_measure_are_compared_with_later_ones_only(
    tmp_path: Path, data: Path
) -> None:
    recipe = SHORT.but(steps=4, validate_every=2, best="loss")

    def best_of(best: str) -> tuple[float, int, int]:
        """The best validation, its step, and the validations since, in a run that goes on."""
        run = Run(tmp_path / "run", recipe.but(best=best), data, accept_changes=True)
        try:
            state = run.resume_or_start().state
        finally:
            run.close()
        return state.lowest_loss, state.best_step, state.no_better

    trained(tmp_path / "run", data, recipe, lambda _: {"loss": 2.0, "bleu": 30.0})
    assert best_of("loss") == best_of("last") == (2.0, 2, 1)
    assert best_of("bleu") == (0.0, 0, 0)
    assert best_of("bleu") == (0.0, 0, 0)  # though the recipe has not changed again
    more = recipe.but(best="bleu", steps=6)
    trained(
        tmp_path / "run", data, more, lambda _: {"loss": 2.0, "bleu": 30.0}, accept_changes=True
    )
    assert best_of("bleu") == (70.0, 6, 0)


@pytest.mark.parametrize(("changed", "seeds"), [("data", (2, 1)), ("validation set", (1, 2))])
def test_validations_of_other_data_are_not_compared(
    tmp_path: Path, data: Path, changed: str, seeds: tuple[int, int]
) -> None:
    """Losses on an easier validation set would let no later checkpoint into the model."""

    def prepared_by(*seeds: int) -> Path:
        paths = [tmp_path / f"{part}-{seed}.txt" for part, seed in enumerate(seeds)]
        for path, seed in zip(paths, seeds, strict=True):
            path.write_text("".join(f"{line}\n" for line in strings(40, seed)))
        train, valid = ([path] for path in paths)
        out, learned = tmp_path / f"data-{seeds}", data / "tokenizer.json"
        prepare_text(
            train, train, out, SHORT, valid_sources=valid, valid_targets=valid, tokenizer=learned
        )
        return out

    run, recipe = tmp_path / "run", SHORT.but(validate_every=2, best="loss", average=2)
    trained(run, prepared_by(1, 1), recipe, lambda _: {"loss": 1.0})
    other, longer = prepared_by(*seeds), recipe.but(steps=12)
    with pytest.raises(ModelError, match=f"the {changed} changed since this run began"):
        trained(run, other, recipe)
    trained(run, other, longer, lambda _: {"loss": 3.0}, accept_changes=True)
    assert open_model(run).manifest["averaged"] == [8, 10]


def test_changes_that_do_not_fit_after_all_leave_everything(copy: Path, data: Path) -> None:
    before = content(copy)
    with pytest.raises(ModelError, match="does not fit this recipe"):
        trained(copy, data, SHORT.but(d_ff=29), accept_changes=True)
    assert content(copy) == before
    trained(copy, data, SHORT)  # as it was begun


def test_another_tokenizer_is_never_accepted(copy: Path, tmp_path: Path) -> None:
    """If the prepared text was replaced, the run has the only copy of its tokenizer."""
    other = prepared(tmp_path, SHORT, strings(89, seed=5))
    before = content(copy)
    for accept_changes in (False, True):
        with pytest.raises(ModelError, match="the tokenizer changed since this run began"):
            trained(copy, other, SHORT, accept_changes=accept_changes)
        assert content(copy) == before


def test_other_data_is_refused_or_accepted(copy: Path, data: Path, tmp_path: Path) -> None:
    other = prepared(tmp_path, SHORT, strings(89, seed=5), data / "tokenizer.json")
    longer = SHORT.but(steps=8)
    before = content(copy)
    with pytest.raises(ModelError, match="the data changed since this run began"):
        trained(copy, other, SHORT)
    assert content(copy) == before
    warnings: list[str] = []
    trained(copy, other, longer, accept_changes=True, warn=warnings.append)
    assert "the data changed since this run began" in warnings[0]
    assert "reading the data from its beginning" in warnings[1]
    assert open_model(copy).manifest["step"] == 8


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"source_tokens": 3, "target_tokens": 3}, TrainingError),
        ({"layers": 1000, "d_model": 2**15}, TrainingError),
    ],
)
def test_what_cannot_be_trained_leaves_no_trace(
    tmp_path: Path, data: Path, change: dict[str, Any], error: type[RegardError]
) -> None:
    with pytest.raises(error):
        Run(tmp_path / "run", RECIPE.but(**change), data)
    with pytest.raises(DataError):
        Run(tmp_path / "run", RECIPE, tmp_path / "missing")
    assert not list(tmp_path.iterdir())


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="is a file"):
        Run(tmp_path / "file", RECIPE, data)
    with pytest.raises(RegardError, match="cannot write"):
        Run(tmp_path / "file" / "run", RECIPE, data)


def test_what_killed_processes_left_is_cleared_away(copy: Path, data: Path) -> None:
    expected = set(content(copy))
    for left in (".sealed.tmp", "..model.tmp.7.tmp", "checkpoints/.step-8.7.tmp"):
        (copy / left).mkdir()
        (copy / left / "weights.safetensors").touch()
    (copy / ".journal.jsonl.7.tmp").touch()
    trained(copy, data, SHORT)
    assert set(content(copy)) == expected


def test_a_damaged_last_checkpoint_costs_only_the_steps_since_the_one_before(
    copy: Path, data: Path
) -> None:
    whole = content(copy)
    path = copy / "checkpoints" / "step-6" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    warnings: list[str] = []
    trained(copy, data, SHORT, warn=warnings.append)
    assert [("step-6" in warning, "damaged" in warning) for warning in warnings] == [(True, True)]
    assert content(copy)["model.safetensors"] == whole["model.safetensors"]
