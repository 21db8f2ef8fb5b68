"""`regard train --seeds`: several models of one recipe and one text, which translate together."""

import json
import os
import signal
from dataclasses import replace
from typing import Any

import pytest

from cli.refusing import World, refused, regard, unchanged
from regard.api import train
from regard.errors import RecipeError, RegardError
from regard.inputs import TrainingFiles
from regard.members import members
from regard.recipe import Recipe
from regard.run.directory import RunDirectory
from regard.run.journal import Journal
from regard.start import MINUTES, Start


def test_members_differ_in_their_seed_alone_and_translate_together(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = world.folder / "runs"
    command = ["train", "-q", *world.text, *world.recipe, "--seeds", "2", "--out", runs]

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return finish(*given)

    finish = RunDirectory.finish
    monkeypatch.setattr(RunDirectory, "finish", interrupted)
    assert regard(*command).status == 130
    assert not (runs / "seed-2").exists()  # none begins after a signal
    monkeypatch.undo()
    assert regard(*command).status == 0
    recipes = [Recipe.read(runs / f"seed-{seed}" / "recipe.toml") for seed in (1, 2)]
    assert [recipe.training.seed for recipe in recipes] == [1, 2]
    assert recipes[0].but(seed=2) == recipes[1]
    weights = [runs / f"seed-{seed}" / "model.safetensors" for seed in (1, 2)]
    before = [path.read_bytes() for path in weights]
    assert before[0] != before[1]
    assert not (runs / "seed-2" / "data").exists()
    together = regard("translate", runs / "seed-1", runs / "seed-2", stdin=b"the dog\n")
    assert together.status == 0
    assert regard(*command).status == 0  # goes on with what is there
    assert [path.read_bytes() for path in weights] == before


@pytest.mark.parametrize(("given", "each"), [(90.0, 30.0), (None, MINUTES / 3)])
def test_members_divide_the_time(world: World, given: float | None, each: float) -> None:
    files = TrainingFiles([world.folder / "source.en"], [world.folder / "target.de"])
    starts = list(members(Start(world.folder / "x", files, minutes=given), 3))
    assert [start.minutes for start in starts] == [each] * 3
    named = members(Start(world.folder / "x", files, recipe="small"), 2)
    assert [start.minutes for start in named] == [None] * 2
    timed = Start(world.folder / "x", files, recipe=Recipe().but(minutes=120.0), minutes=given)
    assert [start.minutes for start in members(timed, 3)] == [(given or 120.0) / 3] * 3


def test_members_divide_the_time_of_the_recipe_that_they_begin_with(world: World) -> None:
    timed = Recipe.read(world.made / "run" / "recipe.toml").but(minutes=60.0)
    origin = world.folder / "origin"
    origin.mkdir()
    (origin / "recipe.toml").write_text(timed.to_toml())
    start = Start(world.folder / "x", start_from=origin)
    assert [one.minutes for one in members(start, 3)] == [20.0] * 3
    assert next(members(start, 3)).recipe == timed.but(minutes=20.0)
    assert next(members(replace(start, minutes=0), 3)).minutes is None
    data = world.copy("data")
    manifest = json.loads((data / "manifest.json").read_text())
    manifest["recipe"]["training"]["minutes"] = 60.0
    (data / "manifest.json").write_text(json.dumps(manifest))
    starts = list(members(Start(world.folder / "x", data=data), 3))
    assert [one.minutes for one in starts] == [20.0] * 3


def test_a_directory_has_members_or_one_run(world: World) -> None:
    runs, run = world.folder / "runs", world.copy("run")
    command = ["train", "-q", *world.text, *world.recipe, "--out"]
    assert regard(*command, runs, "--seeds", "1").status == 0
    with unchanged(world.folder):
        assert refused(*command, runs).startswith(f"{runs}: was begun with --seeds: give it again")
        said = refused(*command, run, "--seeds", "2")
    assert said.startswith(f"{run}: was begun without --seeds: choose another --out")
    with unchanged(world.folder), pytest.raises(RegardError, match="was begun with --seeds"):
        train(out=runs, data=runs / "seed-1/data")


def test_members_that_go_on_without_a_time_keep_theirs(world: World) -> None:
    files = TrainingFiles([world.folder / "source.en"], [world.folder / "target.de"])
    (world.folder / "x/seed-1").mkdir(parents=True)
    (world.folder / "x/seed-1/recipe.toml").write_text(Recipe().but(minutes=60.0).to_toml())
    assert [start.minutes for start in members(Start(world.folder / "x", files), 3)] == [None] * 3


def test_members_search_as_the_first_did_before_it_was_tuned(world: World) -> None:
    run = world.folder / "x/seed-1"
    run.mkdir(parents=True)
    tuned = Recipe().but(layers=1, beam=12, alpha=1.4, max_extra=9)
    (run / "recipe.toml").write_text(tuned.to_toml())
    best = [{"beam": 12, "alpha": 1.4, "bleu": 3.0}]
    for beam, alpha in ((4, 0.6), (8, 1.0)):  # once by the run itself, once by `regard tune`
        own = {"beam": beam, "alpha": alpha}
        Journal(run / "journal.jsonl").write("tuned", step=4, sentences=9, own=own, tried=best)
    start = Start(world.folder / "x", data=world.made / "data")
    _, other = members(start, 2)
    assert other.recipe == tuned.but(beam=4, alpha=0.6)
    asked = tuned.but(beam=2)
    (run / "recipe.toml").write_text(asked.to_toml())
    _, other = members(start, 2)
    assert other.recipe == asked


def test_members_have_no_seed_in_common(world: World) -> None:
    start = Start(world.folder / "x", assignments=["training.seed = 7"])
    with pytest.raises(RecipeError, match="--seeds counts the seeds from 1"):
        list(members(start, 2))


@pytest.mark.parametrize(("minutes", "is_refused"), [("9", True), ("0", False)])
def test_members_divide_only_a_time_that_is_given_as_such(
    world: World, minutes: str, is_refused: bool
) -> None:
    start = Start(world.folder / "x", assignments=[f"training.minutes={minutes}"])
    if is_refused:
        with pytest.raises(RecipeError, match="--seeds divides the time: give --time"):
            next(members(start, 2))
    else:
        assert next(members(start, 2)).minutes is None
