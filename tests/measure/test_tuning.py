"""Choosing beam and length penalty on a development set."""

import json
import os
import shutil
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.refusing import regard as command
from regard.errors import DataError, ModelError, RecipeError, RegardError
from regard.measure.tuning import (
    ALPHAS,
    BEAMS,
    FEWEST,
    Tried,
    keep_chosen,
    refuse_unaligned,
    spread,
    try_searches,
)
from regard.recipe import Recipe, SearchRecipe
from regard.run.journal import read_journal
from regard.run.model_directory import open_model, write_model
from regard.trainer import train_prepared
from regard.translation import load
from run.copying import RECIPE, prepared, strings, trained


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a task of copying, and its data."""
    folder = tmp_path_factory.mktemp("tuning")
    trained(folder / "run", prepared(folder), RECIPE)
    return folder


SOURCES = ["a b c", "b a", "c c b a", "a"]
TINY = {
    "model.layers": 1, "model.d_model": 16, "model.d_ff": 16, "training.steps": 2,
    "tokenizer.vocabulary": 300, "training.tune": True, "search.max_extra": 2, "data.held_out": 2,
}  # fmt: skip
"""Changes to "small": two steps of a small model, which is tuned."""


def test_every_setting_is_tried_once(world: Path) -> None:
    translator = load(world / "run")
    own, heard = translator.recipe, []
    tried = try_searches(translator, SOURCES, SOURCES, "none", heard=heard.append)
    assert sorted(tried) == sorted(heard)
    assert len({one[:2] for one in tried}) == len(tried)
    assert {one.alpha for one in tried} - {own.alpha} <= set(ALPHAS)
    assert {one.beam for one in tried} == {own.beam, *BEAMS}
    assert heard[0][:2] == (own.beam, own.alpha)
    assert translator.recipe == own


class Mistaken:
    """A stand-in for a translator: with each beam and alpha, it fails in some of 100 sentences."""

    def __init__(self, mistakes: dict[tuple[int, float], int]):
        self.recipe, self.mistakes = SearchRecipe(beam=4, alpha=0.6), mistakes

    def translate(self, sources: list[str], *, split: bool) -> list[str]:
        wrong = self.mistakes.get((self.recipe.beam, self.recipe.alpha), 22)
        return ["no word of it"] * wrong + sources[wrong:]


@pytest.mark.parametrize(
    ("mistakes", "chosen"),
    [
        ({(4, 0.6): 20, (4, 0.8): 15}, (4, 0.8)),
        ({(4, 0.6): 20, (4, 0.8): 15, (4, 1.0): 14, (4, 1.2): 40}, (4, 0.8)),  # before a fall
        ({(4, 0.6): 20, (4, 0.8): 15, (4, 1.0): 10, (4, 1.2): 18}, (4, 1.0)),
        ({(4, 0.6): 20, (4, 0.8): 10, (4, 1.0): 14}, (4, 0.8)),  # 1.2 is not tried
        ({(4, 0.6): 20, (4, 0.8): 30, (4, 0.3): 24}, (4, 0.6)),  # nor is 0.0
        ({(4, 0.6): 20, (4, 0.8): 40, (4, 0.3): 12, (4, 0.0): 20}, (4, 0.3)),
        ({(4, 0.6): 20, (8, 0.6): 15, (6, 0.6): 15}, (8, 0.6)),
        ({(4, 0.6): 20, (8, 0.6): 20}, (4, 0.6)),
    ],
)
def test_alpha_is_chosen_by_bleu_and_its_neighbours_then_the_beam_by_bleu(
    mistakes: dict[tuple[int, float], int], chosen: tuple[int, float]
) -> None:
    lines = [f"{n} is the number {n} of these many lines" for n in range(100)]
    tried = try_searches(Mistaken(mistakes), lines, lines, "13a")  # type: ignore[arg-type]
    assert tried[0][:2] == chosen


def test_equal_settings_keep_the_model_as_it_is(world: Path) -> None:
    translator = load(world / "run")
    tried = try_searches(translator, ["a"], ["no such word"], "none")
    assert tried[0][:2] == (translator.recipe.beam, translator.recipe.alpha)


def test_little_time_leaves_settings_out(world: Path) -> None:
    assert len(try_searches(load(world / "run"), SOURCES, SOURCES, "none", seconds=0)) == 1


def test_a_beam_too_wide_for_the_recipe_is_not_tried(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    translator = load(world / "run")
    translator.recipe = translator.recipe.but(max_extra=10_000)
    monkeypatch.setattr(translator, "translate", lambda sources, split: sources)
    tried = try_searches(translator, SOURCES, SOURCES, "none")
    assert {one.beam for one in tried} == {4, 6, 8}  # 12 x 10,000 is more than 100,000


def test_the_best_is_kept_and_the_weights_stay(world: Path) -> None:
    before, weights = open_model(world / "run"), (world / "run/model.safetensors").read_bytes()
    tried = try_searches(load(world / "run"), SOURCES, SOURCES, "none")
    better = [tried[0]._replace(beam=7, alpha=1.5), *tried]
    keep_chosen(world / "run", better)
    after = open_model(world / "run")
    assert after.recipe == before.recipe.but(beam=7, alpha=1.5)
    assert (world / "run/model.safetensors").read_bytes() == weights
    assert after.manifest["tuned"][0]["beam"] == 7
    assert after.manifest["averaged"] == before.manifest["averaged"]
    keep_chosen(world / "run", tried)


def test_nothing_is_kept_in_a_damaged_model(world: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(world / "run", run)
    with (run / "model.safetensors").open("ab") as file:
        file.write(b"0")
    before = (run / "recipe.toml").read_bytes()
    with pytest.raises(ModelError, match=r"model\.safetensors: damaged"):
        keep_chosen(run, [Tried(8, 1.0, 20.0)])
    assert (run / "recipe.toml").read_bytes() == before


def test_a_run_that_is_finished_again_keeps_what_was_tuned_last(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, text, said = tmp_path / "run", str(world / "digits.txt"), list[str]()
    shutil.copytree(world / "run", run)

    def again(beam: int, alpha: float) -> tuple[int, float, int]:
        """Finish the run with another search; return what the model has."""
        recipe = RECIPE.but(beam=beam, alpha=alpha)
        train_prepared(recipe, world / "data", run, warn=said.append)
        model = open_model(run)
        search, tried = model.recipe.search, model.manifest.get("tuned", [])
        return search.beam, search.alpha, len(tried)

    first, second, third = Tried(4, 0.6, 10.0), Tried(8, 1.0, 20.0), Tried(6, 1.2, 30.0)
    for tried in ([second, first], [third, second]):
        monkeypatch.setattr("regard.measure.tuning.try_searches", lambda *_, t=tried, **__: t)
        assert command("tune", run, "--source", text, "--reference", text).status == 0
    assert again(6, 1.2) == (6, 1.2, 2)
    assert not said
    for earlier in ((4, 0.6), (8, 1.0)):
        assert again(*earlier) == (6, 1.2, 2)
        assert "beam 6 and alpha 1.2 stay, because they were tuned" in said.pop()
    for new in (2, 0.3), (4, 1.2):
        assert again(*new) == (*new, 0)
    assert not said


def test_the_command_takes_words_that_suit_the_references(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose recipe has 13a may translate into Korean; another choice of words stays."""
    asked: list[str] = []

    def tried(_: object, sources: list[str], references: list[str], words: str, **__: Any) -> Any:
        asked.append(words)
        return [Tried(4, 0.6, 10.0)]

    monkeypatch.setattr("regard.measure.tuning.try_searches", tried)
    run = tmp_path / "run"
    shutil.copytree(world / "run", run)
    text, korean = tmp_path / "source", tmp_path / "target"
    text.write_text("one two\n" * 3)
    korean.write_text("나는 책을 읽었다.\n" * 3, encoding="utf-8")
    for recipe in (RECIPE.but(bleu_tokenizer="intl"), RECIPE):
        model = open_model(run)
        weights = dict(model.network.named_parameters())
        write_model(run, recipe, model.tokenizer, weights, {})
        done = command("tune", run, "--source", text, "--reference", korean, "--dry-run")
        assert done.status == 0, done.stderr
    assert asked == ["intl", "char"]
    assert f"{korean}: BLEU divides its words by char" in done.stderr


def test_a_model_that_cannot_be_written_is_refused_before_the_translating(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(directory: Path) -> None:
        raise RegardError(f"{directory}: cannot write there")

    text = tmp_path / "text"
    text.write_text("one two\n" * 3)
    monkeypatch.setattr("regard.files.whole.refuse_unwritable", refuse)
    monkeypatch.setattr("regard.measure.tuning.try_searches", lambda *_, **__: pytest.fail("late"))
    done = command("tune", world / "run", "--source", text, "--reference", text)
    assert (done.status, "cannot write there" in done.stderr) == (2, True)


def test_a_development_set_has_as_many_lines_on_both_sides(tmp_path: Path) -> None:
    for sources, references in ((["a"], []), ([], []), (["a"], ["b", "c"])):
        with pytest.raises(DataError, match="give a development set"):
            refuse_unaligned(tmp_path / "a", sources, tmp_path / "b", references)
    with pytest.raises(DataError, match="b: has 0 lines, and standard input has 1: give"):
        refuse_unaligned(Path("-"), ["a"], Path("b"), [])


def test_a_development_set_has_text_on_both_sides() -> None:
    for sources, references, without in (([], [], "a"), (["x"], [" "], "b"), ([""], ["y"], "a")):
        with pytest.raises(DataError, match=f"^{without}: has no text: give a development set$"):
            refuse_unaligned(Path("a"), sources, Path("b"), references)


def test_a_parser_is_not_tuned() -> None:
    with pytest.raises(RecipeError, match=r"training\.tune is for translation"):
        Recipe().but(output="trees", tune=True)


@given(st.lists(st.text(max_size=3), max_size=50), st.integers(0, 60))
def test_sentences_to_choose_by_are_of_the_whole_set(lines: list[str], most: int) -> None:
    numbered = [f"{number} {line}" for number, line in enumerate(lines)]
    places = [int(line.split()[0]) for line in spread(numbered, most)]
    assert len(places) == min(most, len(lines))
    bounds = [*places, len(lines)] if places else []
    apart = [after - before for before, after in pairwise(bounds)]
    assert not apart or (places[0] == 0 and min(apart) >= 1 and max(apart) - min(apart) <= 1)


def test_a_limited_run_chooses_by_sentences_at_equal_distances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import regard

    lines = strings(2 * FEWEST, seed=4)
    text, valid, other = (tmp_path / name for name in ("text", "valid", "other"))
    text.write_text("\n".join(strings(60, seed=3)) + "\n")
    valid.write_text("\n".join(lines) + "\n")
    other.write_text("\n".join(lines).upper() + "\n")
    asked: list[tuple[list[str], list[str]]] = []

    def tries(_: Any, sources: list[str], references: list[str], *__: Any, **___: Any) -> Any:
        asked.append((sources, references))
        return [Tried(1, 0.0, 50.0)]

    monkeypatch.setattr("regard.measure.tuning._affordable", lambda *_: FEWEST)
    monkeypatch.setattr("regard.measure.tuning.try_searches", tries)
    regard.train(
        source=text, target=text, valid_source=valid, valid_target=other, out=tmp_path / "run",
        recipe="small", changes=TINY | {"training.minutes": 9.0},
    )  # fmt: skip
    assert asked == [(lines[::2], [line.upper() for line in lines[::2]])]


def test_a_run_tunes_itself_at_the_end_and_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import regard

    (tmp_path / "text").write_text("\n".join(strings(60, seed=3)) + "\n")
    (tmp_path / "valid").write_text("\n".join(strings(FEWEST, seed=4)) + "\n")
    text, valid = tmp_path / "text", tmp_path / "valid"
    files: dict[str, Any] = {
        "source": text,
        "target": text,
        "out": tmp_path / "run",
        "recipe": "small",
    }
    said: list[str] = []
    out = regard.train(**files, changes=TINY, warn=said.append)
    stay = "beam and alpha stay"
    assert said[-1] == f"{stay}: only 2 validation sentences to choose them by"
    with monkeypatch.context() as patch:
        patch.setattr("regard.measure.tuning._affordable", lambda *_: 1)
        files |= {"valid_source": valid, "valid_target": valid, "out": tmp_path / "limited"}
        regard.train(**files, changes=TINY | {"training.minutes": 9.0}, warn=said.append)
    counts = f"1 of {FEWEST}"
    assert said[-1] == f"{stay}: the time allows {counts} validation sentences to choose them by"
    files["out"] = tmp_path / "tuned"

    def stop(record: dict[str, Any]) -> None:
        if record["event"] == "finish":
            os.kill(os.getpid(), signal.SIGTERM)

    def stopped(*_: object, **__: object) -> list[Tried]:
        os.kill(os.getpid(), signal.SIGTERM)
        return [Tried(1, 0.0, 50.0)]

    with pytest.raises(SystemExit, match="143"):
        regard.train(**files, changes=TINY, progress=stop)
    monkeypatch.setattr("regard.measure.tuning.try_searches", stopped)
    with pytest.raises(SystemExit, match="143"):
        regard.train(**files, changes=TINY)
    monkeypatch.undo()
    assert "tuned" not in json.loads((tmp_path / "tuned/manifest.json").read_text())
    for _ in range(2):  # once more, it is finished already: what was found stays
        out = regard.train(**files, changes=TINY)
        records = read_journal(out / "journal.jsonl")
        [tuned] = [record for record in records if record["event"] == "tuned"]
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["tuned"] == tuned["tried"]
    assert tuned["sentences"] == FEWEST
    search = open_model(out).recipe.search
    assert (search.beam, search.alpha) == (tuned["tried"][0]["beam"], tuned["tried"][0]["alpha"])
