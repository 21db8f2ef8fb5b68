"""The demo makes its corpus, trains, and reports; how well is measured by `make demo` itself."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cli.refusing import Result, refused, regard, unchanged
from regard.cli.demo_corpus import write_text, write_trees
from regard.measure.tuning import Tried, keep_chosen, write_tuned
from regard.recipe import Recipe
from regard.run.journal import Journal


@pytest.fixture(scope="module", autouse=True)
def _few_sentences() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.cli.demo_corpus.TEST_SENTENCES", 13)
        patch.setattr("regard.cli.demo_corpus.VALID_SENTENCES", 7)
        yield


class Demo(NamedTuple):
    """A finished demo of two steps: its command, its directory, and what the command said."""

    argv: tuple[str | Path, ...]
    out: Path
    result: Result


@pytest.fixture(scope="module", params=["translate", "parse"])
def demo(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Demo:
    out = tmp_path_factory.mktemp(request.param) / "my demo"
    argv = ("demo", "--task", request.param, "--out", out, "--pairs", "1000", "--steps", "2")
    result = regard(*argv)
    assert result.status == 0, result.stderr
    return Demo(argv, out, result)


def only(task: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("demo", [task], indirect=True)


def commands(shown: str) -> list[list[str]]:
    """The words of each command that a demo shows last, as a shell takes the whole line."""
    lines = shown.partition("Try next:\n")[2].splitlines()
    subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, check=True)
    return [shlex.split(line, comments=True) for line in lines]


@only("translate")
def test_the_demo_ends_with_its_figures_and_ten_translations(demo: Demo) -> None:
    figures = json.loads((demo.out / "result.json").read_text())
    assert set(figures) == {"bleu", "pronoun_accuracy", "train_seconds", "cost", "sentences"}
    assert figures["sentences"] == 13
    assert 0 <= figures["bleu"] < 50  # two steps teach nothing
    assert "pronouns with the right gender" in demo.result.stdout
    typed = commands(demo.result.stdout)
    assert typed[0][1:] == ["serve", f"{demo.out}=en-de"]
    journal = (demo.out / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in journal].count("validation") == 1


@only("translate")
def test_a_finished_demo_reports_again_without_training(demo: Demo) -> None:
    """Its search may have been tuned since, and stays as it was chosen."""
    own = Recipe.read(demo.out / "recipe.toml").search
    tried = [Tried(1, 0.0, 2.0), Tried(own.beam, own.alpha, 1.0)]
    keep_chosen(demo.out, tried)
    write_tuned(Journal(demo.out / "journal.jsonl"), 2, 7, own, tried)
    model = (demo.out / "model.safetensors").read_bytes()
    (demo.out / "result.json").unlink()
    assert regard(*demo.argv).status == 0
    assert (demo.out / "model.safetensors").read_bytes() == model
    assert json.loads((demo.out / "result.json").read_text())["sentences"] == 13
    assert Recipe.read(demo.out / "recipe.toml").search == own.but(beam=1, alpha=0.0)


def test_another_demo_is_not_taken_for_this_one(demo: Demo) -> None:
    *before, pairs, option, steps = demo.argv
    assert (pairs, steps) == ("1000", "2")
    with unchanged(demo.out.parent):
        assert refused(*before, "1100", option, steps) == (
            f"{demo.out}: was begun with --pairs 1000: choose another --out"
        )
        assert refused(*before, pairs, option, "3").startswith(
            f"{demo.out}: holds another run (training.steps: 2 -> 3): choose another --out"
        )


@only("parse")
def test_the_demo_of_parsing_ends_with_its_figures_and_drawn_trees(demo: Demo) -> None:
    figures = json.loads((demo.out / "result.json").read_text())
    wanted = {"f1", "complete_match", "tagging_accuracy", "train_seconds", "cost", "sentences"}
    assert set(figures) == wanted
    assert figures["sentences"] == 13
    assert 0 <= figures["f1"] < 50  # two steps teach nothing
    assert "F1 of brackets (EVALB)" in demo.result.stdout
    assert demo.result.stdout.count("as the grammar has it") == 2
    assert len(commands(demo.result.stdout)) == 3


@pytest.mark.parametrize(("task", "name"), [("translate", "train.de"), ("parse", "valid.mrg")])
def test_the_users_own_text_is_not_overwritten(tmp_path: Path, task: str, name: str) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / name).write_text("The user's own.\n")
    with unchanged(tmp_path):
        assert refused(
            "demo", "--task", task, "--out", tmp_path, "--pairs", "1000", "--steps", "1"
        ) == (f"{folder}: is not empty: choose another --out")
    (folder / name).unlink()
    write = write_text if task == "translate" else write_trees
    for pairs in (3, 2):  # what an interrupted demo wrote is replaced
        write(folder, pairs)
    assert len((folder / f"train{Path(name).suffix}").read_text().splitlines()) == 2
