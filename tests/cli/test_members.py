"""`regard train --seeds`: several models of one recipe and one text, which translate together."""

import pytest

from cli.refusing import World, regard
from regard.inputs import TrainingFiles
from regard.members import members
from regard.recipe import Recipe
from regard.start import MINUTES, Start


def test_members_differ_in_their_seed_alone_and_translate_together(world: World) -> None:
    runs = world.folder / "runs"
    command = ["train", "-q", *world.text, *world.recipe, "--seeds", "2", "--out", runs]
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
