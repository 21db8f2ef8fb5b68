"""Random damage: refused or passed over by name, never loaded, never a traceback.

`experiments/damage` does the same hundreds of times.
"""

import random

import pytest
from safetensors.torch import load_file

from cli.refusing import GOOD, World, refused, regard
from run.damaging import damage


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_model_is_refused(world: World, seed: int) -> None:
    model = world.copy("model")
    damage(model, random.Random(seed))
    assert refused("translate", model, stdin=GOOD.encode()).startswith(str(model))


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_checkpoint_is_passed_over(world: World, seed: int) -> None:
    run = world.copy("run")
    damage(run / "checkpoints" / "step-4", random.Random(seed))
    result = regard("train", "-q", "--data", world.made / "data", "--out", run)
    assert result.status == 0, result.stderr
    first_note, *others = result.stderr.splitlines()
    assert first_note.startswith(f"skipping a damaged checkpoint: {run}/checkpoints/step-4")
    assert all("skipping a damaged checkpoint" in note for note in others)  # of files swapped
    again, first = (
        load_file(folder / "checkpoints/step-4/weights.safetensors")
        for folder in (run, world.made / "run")
    )
    assert all(again[name].equal(first[name]) for name in first)
