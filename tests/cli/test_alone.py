"""One process at a time prepares the data of a run, or trains it."""

import shutil
from pathlib import Path

import pytest

from cli.refusing import World, refused, regard, unchanged
from regard.errors import InUse, RegardError
from regard.files.locks import locked
from regard.run.beginning import alone_in
from regard.run.finetuning import origin_forgotten_after_errors


def test_data_is_not_prepared_where_another_process_works(world: World) -> None:
    out = world.folder / "run"
    command = ["train", "-q", *world.text, *world.recipe, "--out", out]
    with locked(out / ".lock") as alone, unchanged(world.folder):
        assert alone
        assert refused(*command).startswith(f"{out}: another process is at work here: wait for it")
    assert regard(*command).status == 0


def test_a_run_that_began_meanwhile_keeps_its_data(world: World) -> None:
    run = world.copy("run")
    shutil.copytree(world.made / "data", run / "data")
    with (
        unchanged(run),
        pytest.raises(InUse, match="has begun a run here meanwhile"),
        alone_in(run),
    ):
        pytest.fail("two processes prepare")


def test_what_was_made_for_the_lock_is_removed_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError), alone_in(tmp_path / "new" / "run"):
        raise KeyError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "run").mkdir()
    with pytest.raises(KeyError), alone_in(tmp_path / "run"):
        raise KeyError
    with alone_in(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(("error", "stays"), [(InUse, True), (RegardError, False)])
def test_the_model_that_another_process_begins_with_is_not_forgotten(
    tmp_path: Path, error: type[RegardError], stays: bool
) -> None:
    run = tmp_path / "run"
    with pytest.raises(error), origin_forgotten_after_errors(run):
        run.mkdir()
        (run / "from.json").write_text("{}")  # by the other process, after this one looked
        raise error("in use")
    assert run.exists() == stays


def test_a_text_that_cannot_be_prepared_leaves_nothing_of_a_run_from_a_model(world: World) -> None:
    begin = ["train", "-q", "--from", world.made / "model", "--out", world.folder / "new"]
    world.write("short.en", "one line\n")
    with unchanged(world.folder):
        said = refused(*begin, "--source", world.folder / "short.en", *world.text[2:])
    assert "short.en" in said
