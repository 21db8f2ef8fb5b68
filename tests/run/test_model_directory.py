"""A model directory is whole or it is none, and it opens as what was written."""

import itertools
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from regard.data.rows import one_per_row
from regard.errors import ModelError, RegardError
from regard.files.manifest import seal
from regard.files.whole import remove_leftovers
from regard.recipe import Recipe
from regard.run.model_directory import MODEL_FILES, open_model, write_model
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from run.copying import RECIPE, strings
from run.killing import full_at, killed_at

TOKENIZER = Tokenizer.learn(strings(97, seed=1), "bpe", 300)


@cache
def weights(seed: int, recipe: Recipe = RECIPE) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return dict(Transformer(recipe.model, TOKENIZER.size).named_parameters())


def write(directory: Path, seed: int) -> None:
    """A model whose weights and step are of this seed."""
    write_model(directory, RECIPE, TOKENIZER, weights(seed), {"step": seed})


def is_of(directory: Path, seed: int) -> bool:
    """Whether it opens, as the one model of this seed."""
    model = open_model(directory)
    name, parameter = next(model.network.named_parameters())
    same = torch.equal(parameter, weights(seed)[name])
    assert same == (model.manifest["step"] == seed)
    return same


@pytest.fixture
def model(tmp_path: Path) -> Path:
    write(tmp_path / "model", 1)
    return tmp_path / "model"


def test_it_opens_as_what_was_written(model: Path) -> None:
    opened = open_model(model)
    assert opened.recipe == RECIPE
    assert opened.tokenizer.fingerprint == TOKENIZER.fingerprint
    assert not opened.network.training
    for name, parameter in opened.network.named_parameters():
        assert torch.equal(parameter, weights(1)[name]), name
    half = open_model(str(model), torch.bfloat16).network
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
    assert sorted(path.name for path in model.iterdir()) == sorted(MODEL_FILES)


def test_one_in_use_is_replaced_beside_other_files(model: Path) -> None:
    (model / "journal.jsonl").write_text("mine")
    in_use = open_model(model).network
    rows = one_per_row([[5, 7, 2]])
    before = in_use(rows, rows)
    write(model, 3)
    assert is_of(model, 3)
    assert torch.equal(in_use(rows, rows), before)
    assert {path.name for path in model.iterdir()} == {*MODEL_FILES, "journal.jsonl"}


def test_killed_at_any_instant_of_replacing_there_is_the_old_model_the_new_or_none(
    tmp_path: Path,
) -> None:
    seen = set()
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        write(folder, 1)
        (folder / "checkpoints").mkdir()
        killed = killed_at(n, folder, write, folder, 3)
        try:
            seen.add("old" if is_of(folder, 1) else "new")
        except ModelError as error:
            assert "training has not finished: continue with regard train" in str(error)
            seen.add("none")
        remove_leftovers(folder)  # as the next start does
        write(folder, 5)
        assert is_of(folder, 5)
        assert {path.name for path in folder.iterdir()} == {*MODEL_FILES, "checkpoints"}
        if not killed:
            break
    assert seen == {"old", "none", "new"}
    assert n > 15


def test_a_full_disk_at_any_instant_leaves_the_old_model_or_one_sentence(tmp_path: Path) -> None:
    for n in itertools.count(1):
        folder = tmp_path / str(n)
        write(folder, 1)
        (folder / "checkpoints").mkdir()
        try:
            if not full_at(n, write, folder, 3):
                break
        except RegardError as error:
            assert str(folder) in str(error)
            assert "cannot write: No space left on device" in str(error)
        with suppress(ModelError):
            assert is_of(folder, 1) or is_of(folder, 3)
        write(folder, 5)  # once there is room again
        assert is_of(folder, 5)
    assert n > 15


def test_a_new_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RegardError, match="cannot write: Not a directory"):
        write(tmp_path / "file" / "model", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("part", MODEL_FILES)
def test_damage_to_any_part_is_named(model: Path, part: str) -> None:
    content = (model / part).read_bytes()
    (model / part).write_bytes(content[:-3])
    with pytest.raises(ModelError, match=part):
        open_model(model)
    (model / part).unlink()
    with pytest.raises(ModelError, match=part):
        open_model(model)


def test_places_without_a_model_are_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such model directory"):
        open_model(tmp_path / "missing")
    with pytest.raises(ModelError, match="is a file"):
        open_model(model / "recipe.toml")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    with pytest.raises(ModelError, match="training has not finished"):
        open_model(tmp_path / "run")


def test_parts_that_do_not_belong_together_are_refused(model: Path) -> None:
    def replaced(recipe: Recipe) -> Path:
        (model / "recipe.toml").write_text(recipe.to_toml(), "utf-8")
        seal(model, MODEL_FILES[:-1], {})
        return model

    for change, complaint in (
        ({"d_ff": 29}, r"W_1\.bias is \[23\], the recipe has \[29\]"),
        ({"layers": 2}, r"decoder\.1\..* is missing"),
        ({"heads": 10**9}, r"the recipe needs [\d,]+ numbers, and the weights have [\d,]+"),
    ):
        with pytest.raises(ModelError, match=complaint):
            open_model(replaced(RECIPE.but(**change)))
    assert open_model(replaced(RECIPE))
    seal(model, MODEL_FILES[:2], {})
    with pytest.raises(ModelError, match=r"does not list model\.safetensors"):
        open_model(model)


def test_weights_that_the_recipe_does_not_have_are_refused(tmp_path: Path) -> None:
    two = RECIPE.but(layers=2)
    write_model(tmp_path / "model", RECIPE, TOKENIZER, weights(1, two), {})
    with pytest.raises(ModelError, match="the recipe has no such weight"):
        open_model(tmp_path / "model")
