"""A run goes on only from complete checkpoints, and only as it was begun."""

import fcntl
import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from cli.refusing import (
    World,
    refused,
    regard,
    unchanged,
)
from cli.spoiling import Mark, flip, reseal, resealed, seal_bare, truncate
from regard.api import train
from regard.errors import TrainingError
from regard.recipe import Recipe
from regard.run.finetuning import keep_origin


def resume(world: World, run: Path, *more: str | Path) -> list[str | Path]:
    return ["train", "-q", "--data", world.made / "data", "--out", run, *more]


@pytest.mark.parametrize("command", ["train", "average"])
def test_no_checkpoint_is_whole(world: World, command: str) -> None:
    run = world.copy("run")
    flip(run / "checkpoints" / "step-2" / "weights.safetensors")
    truncate(run / "checkpoints" / "step-3" / "optimizer.safetensors")
    (run / "checkpoints" / "step-4" / "manifest.json").unlink()
    average = ["average", run, "--last", "2", "--out", world.folder / "out"]
    with unchanged(world.folder):
        said = refused(*(resume(world, run) if command == "train" else average))
    place = f"{run}/checkpoints"
    assert said.startswith(f"{place}: no checkpoint is complete ({place}/step-4")
    assert "put one back from a copy" in said


@pytest.mark.parametrize(
    "harm",
    [
        lambda step: flip(step / "weights.safetensors"),
        lambda step: truncate(step / "optimizer.safetensors"),
        lambda step: (step / "weights.safetensors").unlink(),
        lambda step: (step / "manifest.json").write_text("{"),
        lambda step: reseal(step, step=7),
        lambda step: seal_bare(step, {"step": 4, "files": {}}),
        lambda step: reseal(step, batches={"epoch": "one"}),
        lambda step: (shutil.rmtree(step), step.mkdir()),
        lambda step: (shutil.rmtree(step), step.write_text("")),
    ],
    ids=[
        *("weights changed", "moments truncated", "weights removed", "manifest cut"),
        *("of another step", "bare", "of no position", "empty", "a file"),
    ],
)
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    world: World, harm: Callable[[Path], object]
) -> None:
    run = world.copy("run")
    harm(run / "checkpoints" / "step-4")
    result = regard(*resume(world, run))
    assert result.status == 0, result.stderr
    [note] = result.stderr.splitlines()
    assert note.startswith(f"skipping a damaged checkpoint: {run}/checkpoints/step-4")
    starts = [line for line in (run / "journal.jsonl").read_text().splitlines() if "start" in line]
    assert [json.loads(line)["step"] for line in starts] == [0, 3]
    for name in ("weights", "optimizer"):
        again = load_file(run / f"checkpoints/step-4/{name}.safetensors")
        first = load_file(world.made / f"run/checkpoints/step-4/{name}.safetensors")
        assert all(torch.equal(again[key], first[key]) for key in first)


def test_a_checkpoint_is_never_unpickled(world: World) -> None:
    run, mark = world.copy("run"), world.folder / "unpickled"
    for step in (2, 3, 4):
        for name in ("weights", "optimizer"):
            resealed(
                run / f"checkpoints/step-{step}", f"{name}.safetensors", pickle.dumps(Mark(mark))
            )
    for argv in (resume(world, run), ["average", run, "--last", "2", "--out", run / "out"]):
        said = refused(*argv)
        assert said.startswith(f"{run}/checkpoints/step-4/")
        assert "not safetensors" in said
    assert not mark.exists()


def test_checkpoints_that_do_not_belong_together(world: World) -> None:
    run = world.copy("run")
    step = run / "checkpoints" / "step-3"
    weights = load_file(step / "weights.safetensors")
    save_file({"embedding.tokens.weight": torch.zeros(7, 5)}, step / "weights.safetensors")
    reseal(step)
    assert len(weights) > 1
    with unchanged(world.folder):
        said = refused("average", run, "--last", "2", "--out", world.folder / "out")
    assert said.startswith(f"{step}: its weights differ in shape")


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (
            "nowhere",
            "nowhere: is not a run directory, because it has no recipe.toml: name one that",
        ),
        ("data", "data: is prepared data: name another directory for the run"),
        ("model", "model: has no checkpoint to average: name a run that has checkpoints"),
        ("source.en", "source.en: is a file: name a run directory"),
    ],
)
def test_what_cannot_be_averaged(world: World, of: str, said: str) -> None:
    with unchanged(world.folder):
        answer = refused("average", world.made / of, "--out", world.folder / "out")
    assert answer.startswith(f"{world.made}/{said}")


def test_more_checkpoints_than_there_are(world: World) -> None:
    said = refused("average", world.made / "run", "--last", "9", "--out", world.folder / "out")
    assert said == f"{world.made / 'run'}: has 3 complete checkpoints, not 9: give --last 3"


@pytest.mark.parametrize("also", [[], ["--plan"]])
def test_no_more_parts_than_rows(world: World, also: list[str]) -> None:
    run = world.copy("run")
    with unchanged(world.folder):
        said = refused(*resume(world, run, "--micro-batches", "100000", *also))
    assert re.match(r"--micro-batches 100000: a batch has at most \d+ rows to divide", said)


def test_fewer_parts_than_one(world: World) -> None:
    data, recipe = world.made / "data", Recipe.read(world.made / "run" / "recipe.toml")
    for parts in 0, -1:
        with pytest.raises(TrainingError, match=f"--micro-batches {parts}: give at least 1"):
            train(data=data, out=world.folder / "new", recipe=recipe, micro_batches=parts)
    assert not (world.folder / "new").exists()


@pytest.mark.parametrize("also", [[], ["--plan"]])
def test_int8_where_there_is_none(
    world: World, also: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before text is prepared for it."""
    monkeypatch.setattr("regard.arithmetic.choose.has_int8_training", lambda: False)
    asked = ["--set", "training.precision=int8", *world.out, *also]
    for command in (
        ["train", *world.text, *world.recipe, *asked],
        ["train", "--from", world.made / "model", "--data", world.made / "data", *asked],
    ):
        with unchanged(world.folder):
            assert refused(*command).startswith("training.precision=int8 is for an x86 CPU")


def test_a_run_keeps_the_recipe_it_was_begun_with(world: World) -> None:
    run = world.copy("run")
    with unchanged(world.folder):
        said = refused(*resume(world, run, "--set", "training.steps=9"))
        assert refused(*resume(world, run, "--set", "training.steps=9", "--plan")) == said
    assert said.startswith(f"{run}: was begun with another recipe (training.steps: 4 -> 9): ")
    assert "--accept-changes" in said


def test_two_limits_of_the_time(world: World) -> None:
    both = ["--time", "5m", "--set", "training.minutes=9"]
    for also in ([], ["--plan"]):
        with unchanged(world.folder):
            said = refused("train", *world.text, *world.out, *both, *also)
        assert said == "--time (minutes) and training.minutes both limit the time: give one"


@pytest.mark.parametrize(
    "also",
    [["--plan"], ["--board"], ["--micro-batches", "2"], ["--shard"], ["--accept-changes"]],
)
def test_a_replay_follows_no_other_options(world: World, also: list[str]) -> None:
    run = world.copy("run")
    with unchanged(world.folder):
        said = refused(*resume(world, run, "--verify-resume", "2", *also))
    assert said.startswith("--verify-resume replays a run as it was trained: leave out --plan, ")


def test_nothing_is_prepared_for_a_replay_without_a_checkpoint(world: World) -> None:
    with unchanged(world.folder):
        said = refused("train", *world.text, *world.out, "--verify-resume", "2")
    assert "has no checkpoint to verify: name a run that has checkpoints" in said


def test_a_run_keeps_the_shape_it_was_begun_with(world: World) -> None:
    run = world.copy("run")
    with unchanged(world.folder):
        said = refused(*resume(world, run, "--accept-changes", "--set", "model.d_ff=48"))
    start = f"{run}/checkpoints/step-4: does not fit this recipe (model.d_ff: "
    assert said.startswith(start)
    assert "choose another --out" in said


@pytest.mark.parametrize("changed", ["data", "tokenizer"])
def test_a_run_keeps_the_data_it_was_begun_with(world: World, changed: str) -> None:
    run, other = world.copy("run"), world.folder / "other"
    tokenizer = world.made / "data" / "tokenizer.json"
    prepare = ["prepare", "-q", *world.text, *world.recipe, "--out"]
    if changed == "data":
        for name in ("source.en", "target.de"):
            path = world.folder / name
            path.write_text(path.read_text() + "new\n")
    else:
        learned = world.folder / "learned"
        source_alone = ["--source", world.text[1], "--target", world.text[1]]
        assert regard("prepare", "-q", *source_alone, *prepare[6:], learned).status == 0
        tokenizer = learned / "tokenizer.json"
    assert regard(*prepare, other, "--tokenizer", tokenizer).status == 0
    with unchanged(world.folder):
        said = refused("train", "-q", "--data", other, "--out", run)
        knowingly = [*resume(world, run, "--accept-changes")]
        knowingly[knowingly.index("--data") + 1] = other
        if changed == "tokenizer":  # what the weights have been learned for is never changed
            assert refused(*knowingly) == said
    assert said.startswith(f"{run}/checkpoints/step-4: the {changed} changed since this run began")
    assert "choose another --out" in said
    if changed == "data":
        accepted = regard(*knowingly)
        assert accepted.status == 0
        assert "the data changed since this run began" in accepted.stderr


def test_a_run_keeps_the_text_it_was_begun_with(world: World) -> None:
    begin = ["train", "-q", *world.text, "--out", world.folder / "run", *world.recipe]
    assert regard(*begin).status == 0
    other = world.write("other.en", "one other line\n" * 75)
    again = ["--source", other, *world.text[2:], "--out", world.folder / "run"]
    with unchanged(world.folder):
        said = refused("train", "-q", *again)
    assert said.startswith(f"{other}: this run was begun with another --source: choose another")


def test_a_run_goes_on_with_the_data_it_was_begun_with(world: World) -> None:
    run = world.copy("run")
    assert not (run / "data").exists()
    with unchanged(world.folder):
        said = refused("train", "-q", "--out", run)
    assert said == f"{run}: has no data of its own: give --data, or its files again"


def test_what_was_prepared_is_what_the_model_says(world: World) -> None:
    """Whatever the recipe has of it: its text is of at most 24 pieces, and of 300 entries."""
    data, out = world.made / "data", world.folder / "out"
    sizes = [
        one for key in ("layers=1", "d_model=16", "d_ff=32") for one in ("--set", f"model.{key}")
    ]
    end = ["--set", "training.steps=1", "--set", "training.average=1"]
    begun = regard("train", "--data", data, "--out", out, "--recipe", "small", *sizes, *end)
    assert begun.status == 0
    kept = f"{data}: keeps the settings of its preparation (tokenizer.vocabulary: 8000 -> 300; "
    assert kept in begun.stderr
    recipe = Recipe.read(out / "recipe.toml")
    assert (recipe.data.max_length, recipe.tokenizer.vocabulary) == (24, 300)
    with unchanged(world.folder):
        said = refused(*resume(world, out, "--set", "data.max_length=64"))
    assert said.startswith(
        f"{data}: was prepared with other settings (data.max_length: 64 -> 24): leave them"
    )


def test_data_is_trained_on_with_the_recipe_it_was_prepared_with(world: World) -> None:
    out = world.folder / "out"
    assert regard("train", "-q", "--data", world.made / "data", "--out", out).status == 0
    assert Recipe.read(out / "recipe.toml") == Recipe.read(world.made / "run" / "recipe.toml")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["data.row_length=16"], "data.row_length = 16 has no room for a sentence of data.max_len"),
        (["data.source_tokens=200"], "a batch of data.source_tokens = 200 and .* holds no row of"),
        (
            ["data.layout=grouped", "data.target_tokens=20"],
            "data.target_tokens = 20 has no room for a sentence of data.max_length = 24: raise the",
        ),
    ],
)
def test_what_no_batch_could_hold_is_refused_before_text_is_prepared(
    world: World, settings: list[str], said: str
) -> None:
    more = [argument for setting in settings for argument in ("--set", setting)]
    with unchanged(world.folder):
        refusal = refused("train", *world.text, *world.out, *world.recipe, *more)
    assert re.match(said, refusal)


def test_a_second_process_in_one_run(world: World) -> None:
    run = world.copy("run")
    with (run / ".lock").open() as lock, unchanged(world.folder):
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = refused(*resume(world, run))
    assert said.startswith(f"{run}: another process is training here: wait for it, or choose")
    assert regard(*resume(world, run)).status == 0


@pytest.mark.parametrize("content", [b"[model]\nlayer = 1\n", b"\xff", b"x = " + b"[" * 10**5])
def test_a_run_whose_recipe_is_damaged(world: World, content: bytes) -> None:
    run = world.copy("run")
    (run / "recipe.toml").write_bytes(content)
    for argv in (resume(world, run), ["average", run, "--last", "2", "--out", run / "out"]):
        with unchanged(world.folder):
            assert refused(*argv).startswith(f"{run}/recipe.toml: ")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.d_ff=2000000000", "a model of "),
        ("model.heads=2147483647", "a model of "),
        ("data.source_tokens=2", "a batch of .* holds no row of .* raise the former or lower the"),
        ("data.row_length=8", r"\d+ of \d+ pairs do not fit a batch: .* raise it to \d+"),
    ],
)
def test_a_run_too_large_for_the_machine(world: World, setting: str, said: str) -> None:
    argv = ["train", "-q", "--data", world.made / "data", *world.out, *world.recipe]
    with unchanged(world.folder):
        assert re.match(said, refused(*argv, "--set", setting))


def test_what_cannot_begin_with_a_model_is_refused_before_text_is_prepared(world: World) -> None:
    model, lines = world.made / "model", [*world.text, *world.out]
    trees = world.write("some.mrg", "( (S (NP (PRP It)) (VP (VBZ works))))\n")
    begin = ["train", "--from", model]
    with unchanged(world.folder):
        said = refused(*begin, *lines, "--recipe", "small")
        assert said.startswith(f"{model}: is a model of another shape (model.layers: 1 -> ")
        assert refused(*begin, "--trees", trees, *world.out) == (
            f"{model}: is a translator: a parser cannot begin with it"
        )
        assert refused(*begin, *lines, "--set", "tokenizer.vocabulary=2000") == (
            f"{model}: has its own tokenizer: leave out --set tokenizer.*"
        )
        assert refused(*begin, "--out", model).startswith(f"{model}: is the model that --from")
        assert refused(*begin, *world.text, "--out", model) == (
            f"{model}: is the model that --from names: choose another --out"
        )
        run = world.made / "run"
        assert refused(*begin, "--data", world.made / "data", "--out", run) == (
            f"{run}: was begun without --from: choose another --out"
        )


@pytest.mark.parametrize(
    ("more", "status"),
    [
        (["--source", "source.en", "--target", "short.de"], 2),
        (["--data", "data", "--micro-batches", "100000"], 2),
        (["--data", "data", "--plan"], 0),
    ],
)
def test_a_run_that_does_not_begin_forgets_the_model_that_it_was_to_begin_with(
    world: World, monkeypatch: pytest.MonkeyPatch, more: list[str], status: int
) -> None:
    monkeypatch.setattr("regard.cli.plan.print_plan", lambda *_, **__: None)
    monkeypatch.chdir(world.folder)
    world.copy("data")
    world.write("short.de", "der Hund\n")
    model, command = world.made / "model", ["train", "-q", "--out", "some/run", *more]
    with unchanged(world.folder):
        said = regard(*command, "--from", model)
    assert said.status == status, said
    keep_origin(model, Path("some/run"))  # by a command that was killed
    with unchanged(world.folder):
        assert regard(*command, "--from", model) == said


def test_a_run_is_not_written_over_prepared_data(world: World) -> None:
    data = world.copy("data")
    with unchanged(world.folder):
        for argv in (["train", "--data", data, "--out", data], ["demo", "--out", data]):
            assert refused(*argv).startswith(f"{data}: is prepared data: name another directory")
