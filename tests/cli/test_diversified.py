"""`regard train --diversify`: a model that also learns from other models' translations."""

from pathlib import Path
from typing import Any

import pytest

from cli.refusing import World, refused, regard
from regard.api import train
from regard.data.pairs import DATA_FORMAT, prepared_manifest
from regard.diversified import LEAST_OF_TIME, SHARE_OF_EACH, diversified
from regard.errors import DataError, RegardError
from regard.files.lines import text_checksum
from regard.files.manifest import write_manifest
from regard.inputs import TrainingFiles
from regard.recipe import Recipe
from regard.start import MINUTES, Start


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").splitlines()


def test_it_learns_from_the_text_and_from_two_models_translations_of_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = world.folder / "runs"
    held_out = ["--set", "data.held_out=5", "--set", "tokenizer.vocabulary=400"]
    command = ["train", "-q", *world.text, *world.recipe, *held_out, "--diversify", "--out", out]

    def stopped(*given: Any, **named: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("regard.cli.translate.translate_file", stopped)
        assert regard(*command).status == 130
    assert not (out / "recipe.toml").exists()
    ordinary = [given for given in command if given != "--diversify"]
    assert "was begun with --diversify: give it again" in refused(*ordinary)
    with pytest.raises(RegardError, match="was begun with --diversify"):
        train(out=out, data=out / "forward/data")
    assert regard(*command).status == 0

    text, valid = out / "text", lines(out / "forward/data/valid.source.txt")
    source, target = lines(text / "source.txt"), lines(text / "target.txt")
    given = lines(world.folder / "source.en"), lines(world.folder / "target.de")
    assert len(valid) == 5
    assert list(zip(source, target, strict=True)) == [
        pair for pair in zip(*given, strict=True) if pair[0] not in valid
    ]
    for name, model in (("forward", "source"), ("backward", "target")):
        fast = ["-q", "--precision", "auto", "--out", text / "again"]
        assert regard("translate", out / name, "-i", text / f"{model}.txt", *fast).status == 0
        assert (text / "again").read_text() == (text / f"{name}.txt").read_text()
        (text / "again").unlink()
    inputs = prepared_manifest(out / "data")["inputs"]
    names = {side: [one["name"] for one in inputs[side]] for side in inputs}
    assert names["train.source"] == ["source.txt", "source.txt", "backward.txt"]
    assert names["train.target"] == ["target.txt", "forward.txt", "target.txt"]
    assert lines(out / "data/valid.source.txt") == valid
    assert (out / "tokenizer.json").read_bytes() == (out / "forward/tokenizer.json").read_bytes()

    weights = [out / name / "model.safetensors" for name in (".", "forward", "backward")]
    before = [path.read_bytes() for path in weights]
    assert regard(*command).status == 0  # goes on with what is there
    assert regard("train", "-q", "--out", out).status == 0
    assert [path.read_bytes() for path in weights] == before
    world.write("source.en", "another text\n" * 75)
    assert "begun with another --source" in refused(*command)


def begun(start: Start) -> None:
    """Leave behind what a training of this start would, as far as the next start depends on it."""
    data = start.out / "data"
    data.mkdir(parents=True, exist_ok=True)
    inputs = {
        f"train.{side}": [{"sha256": text_checksum(path)} for path in paths]
        for side, paths in (("source", start.files.source), ("target", start.files.target))
    }
    write_manifest(data, {"format": DATA_FORMAT, "inputs": inputs})
    for side in ("source", "target"):
        (data / f"valid.{side}.txt").write_text(f"held-out {side}\n")
    recipe = Recipe().but(minutes=start.minutes or 0.0)
    (start.out / "recipe.toml").write_text(recipe.to_toml())


def echoed(model: Path, source: Path, out: Path) -> None:
    out.write_text(source.read_text())


@pytest.fixture
def files(tmp_path: Path) -> TrainingFiles:
    for side in ("source", "target"):
        held_out = f"{side} one\nheld-out {side}\n{side} two\nheld-out {side}\n"
        (tmp_path / side).write_text(held_out)
    return TrainingFiles([tmp_path / "source"], [tmp_path / "target"])


@pytest.mark.parametrize(
    ("given", "recipe", "whole"),
    [(90.0, None, 90.0), (None, None, MINUTES), (None, Recipe().but(minutes=30.0), 30.0)],
)
def test_the_runs_divide_the_time(
    files: TrainingFiles,
    tmp_path: Path,
    given: float | None,
    recipe: Recipe | None,
    whole: float,
) -> None:
    out, minutes = tmp_path / "x", []
    asked = Start(out, files, recipe=recipe, minutes=given)
    for start in diversified(asked, echoed):
        assert start.whole_vocabulary is (start.out.name == "forward")
        minutes.append(start.minutes)
        begun(start)
        if start.out != out:
            (out / "text").mkdir(exist_ok=True)
            (out / "text/seconds.json").write_text("60")
    share = pytest.approx(whole * SHARE_OF_EACH)
    left = pytest.approx(whole * (1 - 2 * SHARE_OF_EACH) - 1, abs=0.01)
    assert minutes == [share, share, left]
    [last] = diversified(asked, echoed)
    assert last.minutes == (None if given is None and recipe is None else left)


@pytest.mark.parametrize("minutes", [None, 90.0, 600.0])
def test_models_that_were_begun_keep_their_time(
    files: TrainingFiles, tmp_path: Path, minutes: float | None
) -> None:
    """The command may be given again with another time, or without one."""
    out = tmp_path / "x"
    first = next(diversified(Start(out, files, minutes=180.0), echoed))
    begun(first)
    given = Start(out, files, minutes=minutes)
    found = []
    for start in diversified(given, echoed):
        found.append(start.minutes)
        begun(start)
    whole = minutes or 180.0
    assert found == [30.0, 30.0, pytest.approx(max(whole - 60, whole * LEAST_OF_TIME), abs=0.01)]
    [last] = diversified(given, echoed)  # nothing is left to do for the two others
    assert last.out == out
    assert last.minutes == (minutes and pytest.approx(found[-1], abs=0.01))


def test_nothing_is_learned_that_is_validated(files: TrainingFiles, tmp_path: Path) -> None:
    """Neither the pairs that are held out, nor translations that make the same pairs."""
    out = tmp_path / "x"

    def found_out(model: Path, source: Path, made: Path) -> None:
        made.write_text(source.read_text().replace("one", "held-out"))

    for start in diversified(Start(out, files, minutes=180.0), found_out):
        begun(start)
        if start.out.name == "forward":
            (start.out / "data/valid.source.txt").write_text("source one\nheld-out source\n")
            (start.out / "data/valid.target.txt").write_text("source held-out\nheld-out target\n")
    assert lines(out / "text/source.txt") == ["source one", "source two"]
    assert lines(out / "text/target.txt") == ["target one", "target two"]
    assert lines(out / "text/forward.txt") == ["", "source two"]
    assert lines(out / "text/backward.txt") == ["target held-out", "target two"]


def test_a_text_that_changes_meanwhile_is_refused(files: TrainingFiles, tmp_path: Path) -> None:
    runs = diversified(Start(tmp_path / "x", files), echoed)
    begun(next(runs))
    files.source[0].write_text("one more\n" * 5)
    with pytest.raises(RegardError, match="begun with another --source"):
        next(runs)


def test_a_run_that_another_command_began_is_refused_at_once(
    files: TrainingFiles, tmp_path: Path
) -> None:
    start = Start(tmp_path / "x", files)
    begun(next(diversified(start, echoed)))
    begun(start)
    with pytest.raises(RegardError, match="begun without --diversify"):
        next(diversified(start, echoed))


def test_one_process_works_at_a_time(files: TrainingFiles, tmp_path: Path) -> None:
    start = Start(tmp_path / "x", files)
    working = diversified(start, echoed)
    next(working)
    with pytest.raises(RegardError, match="another process is at work here"):
        next(diversified(start, echoed))
    working.close()
    assert next(diversified(start, echoed)).out.name == "forward"


def test_a_text_that_no_run_wrote_stays(files: TrainingFiles, tmp_path: Path) -> None:
    (tmp_path / "x/text").mkdir(parents=True)
    (tmp_path / "x/text/source.txt").write_text("mine\n")
    with pytest.raises(DataError, match="is not empty"):
        next(diversified(Start(tmp_path / "x", files), echoed))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--seeds", "2"], "leave out --seeds"),
        (["--plan"], "leave out --seeds, --plan"),
        (["--verify-resume", "2"], "--verify-resume"),
        (["--mix", "1"], "leave out --data, --from and --mix"),
        (["--from", "x"], "leave out --data, --from and --mix"),
        (["--set", "data.share=0.5"], "uses the whole text: leave out --set data.share"),
        (["--task", "parse"], "is for translators"),
        (["--set", "training.minutes=9"], "give --time"),
    ],
)
def test_what_does_not_go_with_it_is_refused(world: World, given: list[str], said: str) -> None:
    out = world.folder / "out"
    assert said in refused("train", *world.text, "--diversify", *given, "--out", out)
    assert not out.exists()


def test_it_needs_a_text_and_a_run_of_its_own(world: World) -> None:
    members = world.folder / "members"
    (members / "seed-1").mkdir(parents=True)
    (members / "seed-1/recipe.toml").write_text(Recipe().to_toml())
    said = refused("train", *world.text, "--diversify", "--out", members)
    assert said == f"{members}: was begun with --seeds: choose another --out"
    assert "give --source and --target" in refused("train", "--diversify", *world.out)
    run = world.copy("run")
    command = ["train", "-q", *world.text, "--diversify", "--out", run]
    assert "was begun without --diversify" in refused(*command)


def test_torchrun_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = refused("train", *world.text, "--diversify", *world.out)
    assert "without torchrun" in said
