"""§6.1: the mean of the last checkpoints, by hand."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.errors import ModelError
from regard.files.tensors import write_tensors
from regard.run.averaging import average_run, average_weights
from regard.run.checkpoints import Checkpoint
from run.copying import prepared, trained


def checkpoint(path: Path, **weights: Tensor) -> Checkpoint:
    path.mkdir()
    write_tensors(path / "weights.safetensors", weights)
    return Checkpoint(path, {"step": 2})


def test_the_mean_of_each_weight(tmp_path: Path) -> None:
    given = [
        checkpoint(tmp_path / "1", a=torch.tensor([1.0, -2.0]), b=torch.tensor(5.0)),
        checkpoint(tmp_path / "2", a=torch.tensor([2.0, 4.0]), b=torch.tensor(5.0)),
        checkpoint(tmp_path / "3", a=torch.tensor([6.0, 1.0]), b=torch.tensor(8.0)),
    ]
    mean = average_weights(given)
    assert {k: t.tolist() for k, t in mean.items()} == {"a": [3.0, 1.0], "b": 6.0}
    assert all(tensor.dtype == torch.float32 for tensor in mean.values())


def test_equal_checkpoints_have_themselves_as_their_mean_and_order_is_nothing(
    tmp_path: Path,
) -> None:
    weights = torch.randn(97, generator=torch.Generator().manual_seed(1))
    equal = [checkpoint(tmp_path / str(i), a=weights) for i in range(7)]
    assert torch.equal(average_weights(equal)["a"], weights)
    different = [checkpoint(tmp_path / f"x{i}", a=weights * 2.0**i) for i in range(-5, 6)]
    assert torch.equal(average_weights(different)["a"], average_weights(different[::-1])["a"])


def test_nothing_to_average_and_strangers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no complete checkpoint"):
        average_weights([])
    one = checkpoint(tmp_path / "1", a=torch.zeros(3))
    wider = checkpoint(tmp_path / "2", a=torch.zeros(5))
    other = checkpoint(tmp_path / "3", b=torch.zeros(3))
    for stranger in (wider, other):
        with pytest.raises(ModelError, match=f"{stranger.path}: its weights differ in shape"):
            average_weights([one, stranger])


def test_a_step_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    trained(tmp_path / "run", prepared(tmp_path), validate=lambda _: {"loss": 1.0})
    for steps, out in (([8, 10], "once"), ([10, 8, 10], "twice")):
        found = average_run(tmp_path / "run", tmp_path / out, 5, pytest.fail, steps=steps)
        assert found == [8, 10]
    once, twice = (tmp_path / out / "model.safetensors" for out in ("once", "twice"))
    assert once.read_bytes() == twice.read_bytes()


def test_a_damaged_checkpoint_is_warned_of_once(tmp_path: Path) -> None:
    trained(tmp_path / "run", prepared(tmp_path), validate=lambda _: {"loss": 1.0})
    (tmp_path / "run/checkpoints/step-11/weights.safetensors").write_bytes(b"")
    warnings: list[str] = []
    assert average_run(tmp_path / "run", tmp_path / "out", 2, warnings.append, best=True) == [8, 10]
    assert len(warnings) == 1
