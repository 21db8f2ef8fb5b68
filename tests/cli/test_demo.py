"""The demo makes its corpus, trains, and reports; how well is measured by `make demo` itself."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from cli.refusing import refused, regard, unchanged


@pytest.fixture(autouse=True)
def _few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.cli.demo_corpus.TEST_SENTENCES", 13)
    monkeypatch.setattr("regard.cli.demo_corpus.VALID_SENTENCES", 7)


def commands(shown: str) -> list[list[str]]:
    """The words of each command that a demo shows last, as a shell takes the whole line."""
    lines = shown.partition("Try next:\n")[2].splitlines()
    subprocess.run(["bash", "-n"], input="\n".join(lines), text=True, check=True)
    return [shlex.split(line, comments=True) for line in lines]


def test_the_demo_ends_with_its_figures_and_ten_translations(tmp_path: Path) -> None:
    out = tmp_path / "my demo"
    result = regard("demo", "--out", out, "--pairs", "1000", "--steps", "3")
    assert result.status == 0, result.stderr
    figures = json.loads((out / "result.json").read_text())
    assert set(figures) == {"bleu", "pronoun_accuracy", "train_seconds", "cost", "sentences"}
    assert figures["sentences"] == 13
    assert 0 <= figures["bleu"] < 50  # three steps teach nothing
    assert "pronouns with the right gender" in result.stdout
    typed = commands(result.stdout)
    assert typed[0][1:] == ["serve", f"{out}=en-de"]
    journal = (out / "journal.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in journal].count("validation") == 1


def test_a_finished_demo_reports_again_without_training(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    argv = ("demo", "--out", out, "--pairs", "1000", "--steps", "1")
    assert regard(*argv).status == 0
    model = (out / "model.safetensors").read_bytes()
    assert regard(*argv).status == 0
    assert (out / "model.safetensors").read_bytes() == model


@pytest.mark.parametrize("task", ["translate", "parse"])
def test_another_demo_is_not_taken_for_this_one(task: str, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    argv = ("demo", "--task", task, "--out", out, "--pairs", "1000", "--steps", "1")
    assert regard(*argv).status == 0
    with unchanged(tmp_path):
        assert refused(*argv[:-3], "1100", *argv[-2:]) == (
            f"{out}: was begun with --pairs 1000: choose another --out"
        )
        assert refused(*argv[:-1], "2").startswith(
            f"{out}: holds another run (training.steps: 1 -> 2): choose another --out"
        )


def test_the_demo_of_parsing_ends_with_its_figures_and_drawn_trees(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    result = regard("demo", "--task", "parse", "--out", out, "--pairs", "1000", "--steps", "2")
    assert result.status == 0, result.stderr
    figures = json.loads((out / "result.json").read_text())
    wanted = {"f1", "complete_match", "tagging_accuracy", "train_seconds", "cost", "sentences"}
    assert set(figures) == wanted
    assert figures["sentences"] == 13
    assert 0 <= figures["f1"] < 50  # two steps teach nothing
    assert "F1 of brackets (EVALB)" in result.stdout
    assert result.stdout.count("as the grammar has it") == 2
    assert len(commands(result.stdout)) == 3
