"""A checkpoint holds all that training is, and at every instant one is whole."""

import itertools
import os
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from torch import nn

from regard.errors import ModelError, RegardError, Unreadable
from regard.files.whole import remove_leftovers
from regard.optimizer import FlatAdam
from regard.recipe import TrainingRecipe
from regard.run import checkpoints
from regard.run.checkpoints import Keep
from run.killing import full_at, killed_at


def optimizer(seed: int = 1, width: int = 3) -> FlatAdam:
    """With moments that are not zero."""
    torch.manual_seed(seed)
    model = nn.Linear(width, 5)
    adam = FlatAdam(model, TrainingRecipe(), torch.float32)
    for _ in range(2):
        adam.make_way()
        model(torch.randn(7, width)).pow(2).sum().backward()
        adam.step(0.01, tokens=7)
    return adam


def save(
    folder: Path, step: int, keep: int = 2, adam: FlatAdam | None = None, extra: bool = False
) -> Path:
    about = {"step": step, "extra": extra, "state": {}, "batches": {}, "data": "", "tokenizer": ""}
    randoms = [checkpoints.random_states()]
    adam = adam or optimizer()
    weights, moments = adam.named_weights(), adam.state()
    return checkpoints.save(folder, weights, moments, about, Keep(keep), randoms)


def steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints, newest first; fails on a damaged one."""
    return [found.step for found in checkpoints.newest(folder, 100, pytest.fail)]


def damage(checkpoint: Path) -> None:
    path = checkpoint / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def test_weights_moments_and_random_state_come_back_bit_by_bit(tmp_path: Path) -> None:
    adam = optimizer()
    save(tmp_path, 2, adam=adam)
    drawn = torch.rand(11)  # after the save
    [found] = checkpoints.newest(tmp_path, 1, pytest.fail)
    other = optimizer(seed=3)
    states = checkpoints.restore(found, other)
    checkpoints.set_random_states(states, rank=0, seed=(1,))
    assert torch.equal(torch.rand(11), drawn)
    assert torch.equal(other.master, adam.master)
    assert other.state().keys() == {"step", "exp_avg", "exp_avg_sq"}
    for name, tensor in adam.state().items():
        assert tensor.abs().sum() > 0
        assert torch.equal(other.state()[name], tensor)


def test_a_folder_whose_name_is_not_utf_8_is_read(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    save(folder, 2)
    [found] = checkpoints.newest(folder, 1, pytest.fail)
    assert found.processes == 1
    checkpoints.restore(found, optimizer())


def test_a_gpu_without_a_saved_state_is_seeded_for_each_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise all processes would draw the same masks after a checkpoint that CPUs made."""
    given: list[int | torch.Tensor] = []
    for name in ("manual_seed", "set_rng_state"):
        monkeypatch.setattr(torch.cuda, name, given.append)
    state = torch.get_rng_state()
    states = {"cpu": state, "cpu.1": state, "cpu.2": state, "cuda.2": state}
    for available in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=available: there)
        for rank in range(3):
            checkpoints.set_random_states(states, rank, seed=(1, 7))
            assert torch.equal(torch.get_rng_state(), state)
    first, second, saved = given
    assert first != second
    assert saved is state


def test_the_newest_are_kept_by_number(tmp_path: Path) -> None:
    for step in (7, 9, 10, 101):  # as words, 101 comes before 7
        save(tmp_path, step, keep=3)
    assert steps(tmp_path) == [101, 10, 9]
    assert len(checkpoints.newest(tmp_path, 2, pytest.fail)) == 2


def test_extra_ones_go_with_the_next(tmp_path: Path) -> None:
    for step, extra in ((2, False), (4, False), (5, True), (6, False)):
        save(tmp_path, step, keep=3, extra=extra)
    assert steps(tmp_path) == [6, 4, 2]
    for step in (7, 8):
        save(tmp_path, step, keep=3, extra=True)
        assert steps(tmp_path) == [step, 6, 4, 2]
    save(tmp_path, 10, keep=3)
    assert steps(tmp_path) == [10, 6, 4]
    save(tmp_path, 11, keep=1, extra=True)
    assert steps(tmp_path) == [11, 10]


def test_damaged_ones_are_passed_over_by_name(tmp_path: Path) -> None:
    for step in (2, 4, 6, 8):
        save(tmp_path, step, keep=4)
    damage(tmp_path / "step-8")
    (tmp_path / "step-4" / "manifest.json").unlink()
    warnings: list[str] = []
    found = checkpoints.newest(tmp_path, 2, warnings.append)
    assert [one.step for one in found] == [6, 2]
    assert len(warnings) == 2
    assert "step-8/optimizer.safetensors: damaged" in warnings[0]
    assert "step-4: no manifest.json" in warnings[1]


def test_a_manifest_that_is_none_hinders_no_later_save(tmp_path: Path) -> None:
    for step in (2, 4):
        save(tmp_path, step)
    for content in ("[" * 10**5, "9" * 10**4, "[]"):
        (tmp_path / "step-2" / "manifest.json").write_text(content)
        save(tmp_path, 6, keep=3)
        assert [one.step for one in checkpoints.newest(tmp_path, 2, pytest.fail)] == [6, 4]


def test_none_is_an_empty_list_but_none_whole_is_refused(tmp_path: Path) -> None:
    assert checkpoints.newest(tmp_path / "missing", 1, pytest.fail) == []
    damage(save(tmp_path, 2))
    with pytest.raises(ModelError, match="no checkpoint is complete"):
        checkpoints.newest(tmp_path, 1, pytest.fail)


def test_a_checkpoint_under_the_name_of_another_is_damaged(tmp_path: Path) -> None:
    save(tmp_path, 2).rename(tmp_path / "step-3")
    with pytest.raises(ModelError, match="does not describe a checkpoint of step 3"):
        checkpoints.newest(tmp_path, 1, pytest.fail)


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_one_ahead_never_pushes_out_the_one_just_saved(tmp_path: Path, keep: int) -> None:
    for step in (8, 10):
        save(tmp_path, step, keep=2)
    damage(tmp_path / "step-10")  # the run comes back to 8, and goes on
    save(tmp_path, 9, keep)
    assert steps(tmp_path) == [9, 8][:keep]


def test_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    save(tmp_path, 2)
    damage(save(tmp_path, 4))
    save(tmp_path, 4)
    assert steps(tmp_path) == [4, 2]


def test_the_moments_of_another_model_do_not_fit(tmp_path: Path) -> None:
    save(tmp_path, 2)
    [found] = checkpoints.newest(tmp_path, 1, pytest.fail)
    with pytest.raises(RuntimeError):
        checkpoints.restore(found, optimizer(width=4))


def test_killed_at_any_instant_of_a_save_the_old_or_the_new_one_is_whole(tmp_path: Path) -> None:
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        save(folder, 2, keep=1)
        killed = killed_at(n, folder, save, folder, 4, 1)
        assert steps(folder) in ([2], [4, 2], [4])
        save(folder, 6, keep=1)
        assert steps(folder) == [6]
        remove_leftovers(folder)
        assert [path.name for path in folder.iterdir()] == ["step-6"]
        if not killed:
            break
    assert n > 9


def test_a_full_disk_at_any_instant_of_a_save_costs_no_checkpoint(tmp_path: Path) -> None:
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        save(folder, 2)
        with suppress(RegardError):
            if not full_at(n, save, folder, 4):
                break
        assert steps(folder) in ([2], [4, 2])
        assert all(path.name.startswith("step-") for path in folder.iterdir())
    assert n > 9


def test_checkpoints_around_the_best_step_outlive_the_newest(tmp_path: Path) -> None:
    found = [tmp_path / f"step-{step}" for step in range(10, 110, 10)]
    names = lambda kept: sorted(int(path.name[5:]) for path in kept)  # noqa: E731
    assert names(Keep(3, averaged=2).choose(found)) == [80, 90, 100]
    assert names(Keep(2, averaged=3, best=40).choose(found)) == [30, 40, 50, 90, 100]
    assert names(Keep(2, averaged=4, best=40).choose(found)) == [30, 40, 50, 60, 90, 100]
    assert names(Keep(1, averaged=2, best=100).choose(found)) == [90, 100]


def test_the_nearest_checkpoints_are_found_and_damaged_ones_skipped(tmp_path: Path) -> None:
    model = FlatAdam(nn.Linear(2, 2), TrainingRecipe(), torch.float32)
    for step in range(1, 8):
        about = {"step": step, "state": {}, "batches": {}, "data": "d", "tokenizer": "t"}
        keep = Keep(newest=2, averaged=3, best=3)
        checkpoints.save(tmp_path, model.named_weights(), model.state(), about, keep)
    assert [path.name for path in checkpoints.paths(tmp_path)] == [
        f"step-{step}" for step in (2, 3, 4, 6, 7)
    ]
    (tmp_path / "step-3" / "weights.safetensors").write_bytes(b"")
    warnings: list[str] = []
    nearest = checkpoints.to_average(tmp_path, 3, 3, warnings.append)
    assert sorted(one.step for one in nearest) == [2, 4, 6]
    assert len(warnings) == 1
    assert [one.step for one in checkpoints.to_average(tmp_path, 0, 2, pytest.fail)] == [7, 6]


def test_an_extra_checkpoint_takes_no_place_and_is_averaged_only_where_too_few_were_due(
    tmp_path: Path,
) -> None:
    model = FlatAdam(nn.Linear(2, 2), TrainingRecipe(), torch.float32)

    def save(step: int, *, extra: bool) -> list[int]:
        about = {"step": step, "state": {}, "batches": {}, "data": "d", "tokenizer": "t"}
        about |= {"extra": extra}
        checkpoints.save(tmp_path, model.named_weights(), model.state(), about, Keep(newest=2))
        return [checkpoints.step_of(path) for path in checkpoints.paths(tmp_path)]

    def averaged(count: int, best: int = 0) -> list[int]:
        return [c.step for c in checkpoints.to_average(tmp_path, best, count, pytest.fail)]

    assert save(3, extra=False) == [3]
    assert save(5, extra=True) == [3, 5]
    assert averaged(1) == [3]
    assert averaged(1, best=5) == [3]
    assert averaged(2) == [3, 5]  # two were wanted, and one was due
    assert save(6, extra=False) == [3, 6]
    assert save(7, extra=True) == [3, 6, 7]
    assert save(8, extra=True) == [3, 6, 8]
    assert averaged(2) == [6, 3]
    assert [c.step for c in checkpoints.newest(tmp_path, 1, pytest.fail)] == [
        8
    ]  # from which it continues
    assert save(9, extra=False) == [6, 9]


def test_a_folder_that_is_a_link_to_nowhere_is_not_an_empty_one(tmp_path: Path) -> None:
    away = tmp_path / "away"
    save(away, 2)
    folder = tmp_path / "checkpoints"
    folder.symlink_to(away)
    assert steps(folder) == [2]
    away.rename(tmp_path / "not mounted")
    with pytest.raises(Unreadable, match=r"a link to .*away: its checkpoints cannot be read"):
        checkpoints.newest(folder, 1, pytest.fail)
    assert checkpoints.paths(tmp_path / "missing") == []


def test_a_checkpoint_that_is_a_link_is_removed_like_the_others(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "checkpoints", tmp_path / "elsewhere"
    save(folder, 1).rename(elsewhere)
    (folder / "step-1").symlink_to(elsewhere)
    for step in (2, 3, 4):
        save(folder, step, keep=2)
        remove_leftovers(folder)
    assert steps(folder) == [4, 3]
    assert sorted(path.name for path in folder.iterdir()) == ["step-3", "step-4"]
    assert steps(tmp_path) == []
    assert (elsewhere / "manifest.json").exists()
    (folder / ".step-9.1.tmp").symlink_to(elsewhere)  # as an earlier version left it
    remove_leftovers(folder)
    assert (elsewhere / "manifest.json").exists()
    assert not (folder / ".step-9.1.tmp").is_symlink()
