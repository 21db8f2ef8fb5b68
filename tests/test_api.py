"""The product from Python: what the commands do, silently, with exceptions for refusals."""

import os
import pickle
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import regard
from cli.refusing import regard as command
from regard.corpus import write_corpus, write_treebank
from regard.data.aligned import Progress
from regard.errors import DataError, MissingExtra, RecipeError, RegardError
from regard.parsing import Parser
from regard.presets import SMALL
from regard.recipe import Recipe
from regard.run.journal import read_journal

TINY = {
    "model.layers": 1,
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.heads": 2,
    "tokenizer.vocabulary": 400,
    "data.source_tokens": 600,
    "data.target_tokens": 600,
    "training.steps": 4,
    "training.save_every": 2,
    "training.average": 2,
    "training.validate_sentences": 2,
    "search.max_extra": 5,
}
EN_DE = {"source": "train.en", "target": "train.de"}
BY_NAME = {**EN_DE, "recipe": "small"}
"""Without a recipe, several would be tried out first."""
SIX_LINES = """\
import regard

run = regard.train(source="train.en", target="train.de", out="runs/mine", progress=print)
translator = regard.load(run)
for line in translator.translate(["The dog sleeps because it is tired."]):
    print(line)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sentence pairs and trees, in the current folder."""
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "train", seed=1, sentences=200)
    write_treebank(tmp_path / "train.mrg", seed=1, trees=60)
    return tmp_path


def settings(changes: dict[str, Any]) -> list[str]:
    return [f"--set={field}={value}" for field, value in changes.items()]


def test_six_lines_train_and_translate(capsys: pytest.CaptureFixture[str]) -> None:
    exec(SIX_LINES.replace("progress=print", f"changes={TINY}, progress=print"), {})
    *records, translation = capsys.readouterr().out.splitlines()
    assert {eval(record)["event"] for record in records} >= {"prepare", "start", "step", "finish"}
    assert translation
    exec(SIX_LINES, {})  # the same lines continue, by the recipe of the run: nothing is left to do
    *records, again = capsys.readouterr().out.splitlines()
    assert again == translation
    assert "step" not in {eval(record)["event"] for record in records}


def test_a_run_is_that_of_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    given = {"recipe": "small", "changes": TINY}
    out = regard.train(source=["train.en"], target=Path("train.de"), out="one", **given)
    assert out == Path("one")
    assert capfd.readouterr() == ("", "")
    files = ("--source", "train.en", "--target", "train.de")
    assert (
        command("train", *files, "--out", "two", "--recipe", "small", *settings(TINY)).status == 0
    )
    names = sorted(path.relative_to("one") for path in Path("one").rglob("*") if path.is_file())
    assert names == sorted(p.relative_to("two") for p in Path("two").rglob("*") if p.is_file())
    for name in ("recipe.toml", "tokenizer.json", "model.safetensors"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes()


def test_data_is_that_of_the_command() -> None:
    heard: list[Progress] = []
    report = regard.prepare(
        source="train.en", target="train.de", out="one", changes=TINY, progress=heard.append
    )
    assert (report.train.kept, report.valid.kept, report.vocabulary) == (180, 20, 400)
    assert [reading.stage for reading in heard if reading.done == 0] == [
        "count",
        "survey",
        "learn",
        "encode",
    ]
    files = ("--source", "train.en", "--target", "train.de")
    assert command("prepare", *files, "--out", "two", *settings(TINY)).status == 0
    for path in Path("one").iterdir():
        assert path.read_bytes() == Path("two", path.name).read_bytes()


@pytest.mark.parametrize(
    ("function", "given", "option"),
    [
        (regard.prepare, {**EN_DE, "out": ""}, "out"),
        (regard.prepare, {**EN_DE, "out": "a", "tokenizer": ""}, "tokenizer"),
        (regard.train, {**EN_DE, "out": ""}, "out"),
        (regard.train, {"data": "", "out": "a"}, "data"),
        (regard.train, {**EN_DE, "out": "a", "start_from": ""}, "from"),
    ],
)
def test_an_empty_path_is_not_the_current_directory(
    function: Any, given: dict[str, Any], option: str, folder: Path
) -> None:
    before = sorted(folder.iterdir())
    with pytest.raises(RegardError, match=f"--{option} has no value"):
        function(**given)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"], ids=["NUL", "surrogate"])
@pytest.mark.parametrize("argument", ["out", "source", "tokenizer", "recipe", "data", "start_from"])
def test_what_cannot_name_a_file_is_refused(argument: str, name: str, folder: Path) -> None:
    before = sorted(folder.iterdir())
    given = Path(name) if argument == "recipe" else name
    with pytest.raises(RegardError, match=r"'(\./)?a\\(x00|ud800)b':? cannot (name|read)"):
        regard.train(**{**EN_DE, "out": "none", argument: given})
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (regard.prepare, {"workers": "2"}),
        (regard.prepare, {"workers": 2.5}),
        (regard.prepare, {"mix": [1.5]}),
        (regard.prepare, {"mix": 2}),
        (regard.train, {"mix": 2}),
        (regard.train, {"micro_batches": 2.5}),
    ],
)
def test_what_is_no_whole_number_is_named(function: Any, given: dict[str, Any]) -> None:
    [name] = given
    with pytest.raises(
        TypeError, match=f"{name}: expected (a whole number|whole numbers in .*), not"
    ):
        function(**EN_DE, out="none", **given)
    assert not Path("none").exists()


@pytest.mark.parametrize("positions", ["sinusoidal", "words"])
def test_a_parser_is_trained_and_parses(positions: str) -> None:
    changes = {**TINY, "model.positions": positions}
    run = regard.train(trees="train.mrg", out="parser", changes=changes)
    words = ["The", "dog", "barks", "."]
    [tree] = regard.parse(run, [words])
    assert tree.words() == words
    assert regard.parse(run, iter([["It", "sleeps", "."], words]))[1] == tree
    parser = regard.load_parser(run)
    assert isinstance(parser, Parser)
    assert parser.parse([words]) == [tree]
    with pytest.raises(TypeError, match="one str is not a list of sentences"):
        regard.parse(run, "The dog barks.")
    with pytest.raises(DataError, match="sentence:1: has no words"):
        regard.parse(run, [[]])


def test_text_is_parsed_with_the_words_of_the_treebank() -> None:
    pytest.importorskip("nltk")
    run = regard.train(trees="train.mrg", out="parser", changes=TINY)
    trees = regard.parse(run, ["The dog doesn't bark.", ["It", "sleeps"]])
    assert [tree.words() for tree in trees] == [
        ["The", "dog", "does", "n't", "bark", "."],
        ["It", "sleeps"],
    ]


def test_text_without_the_extra_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "nltk.tokenize", None)
    with pytest.raises(MissingExtra, match="parse") as raised:
        regard.parse("nowhere", ["The dog barks."])
    in_another_process = pickle.loads(pickle.dumps(raised.value))
    assert type(in_another_process) is MissingExtra
    assert str(in_another_process) == str(raised.value)


@pytest.mark.parametrize(
    ("given", "kind", "why"),
    [
        ({}, RegardError, "runs/x: nothing to train on yet: give --source and --target"),
        ({"source": "train.en", "target": "no"}, DataError, "no: no such file"),
        ({"trees": "train.mrg", "task": "translate"}, RegardError, "--trees is for parsing"),
        ({"recipe": "bsae", "data": "x"}, RecipeError, "did you mean base"),
        ({"changes": {"training.step": 4}}, RecipeError, "did you mean training.steps"),
        ({"changes": {"steps": 4}}, RecipeError, "write it as section.key=value"),
        ({"minutes": 5, "changes": {"training.minutes": 9}}, RecipeError, "both limit the time"),
        ({"changes": {"training.steps": "many"}}, RecipeError, "training.steps: input should be"),
    ],
)
def test_refusals_are_exceptions(given: dict[str, Any], kind: type[RegardError], why: str) -> None:
    files = {} if not given or given.keys() & {"source", "trees", "data"} else EN_DE
    with pytest.raises(kind, match=why):
        regard.train(out="runs/x", **files, **given)
    assert not Path("runs").exists()


def test_a_recipe_may_be_a_value_a_name_or_a_file() -> None:
    small = {**TINY, "training.keep": 2, "training.average": 2}
    value = SMALL.set(*(f"{field}={number}" for field, number in small.items()))
    Path("my.toml").write_text(value.to_toml(), "utf-8")
    given: tuple[tuple[str | Path | Recipe, dict[str, Any]], ...] = (
        ("small", small),
        (value, {}),
        (Path("my.toml"), {}),
    )
    for number, (recipe, changes) in enumerate(given):
        run = regard.train(**EN_DE, out=f"run-{number}", recipe=recipe, changes=changes)
        assert Recipe.read(run / "recipe.toml") == value


def test_warnings_go_to_a_callable() -> None:
    said: list[str] = []
    changes = {**TINY, "training.save_every": 0, "training.save_minutes": 0.0}
    regard.train(**EN_DE, out="run", recipe="small", changes=changes, warn=said.append)
    assert said == [
        "run: the model is the average of 1, not 2, checkpoints: no more were saved "
        "(training.save_every, training.save_minutes)"
    ]


def test_little_disk_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 7000})
    monkeypatch.setattr("regard.measure.outline.shutil.disk_usage", lambda path: usage)
    said: list[str] = []
    regard.train(**BY_NAME, out="run", changes=TINY, warn=said.append)
    assert said[0].startswith("run: too little disk: ")
    assert "7 kB are free" in said[0]


def steps_of(run: str) -> list[int]:
    return [r["step"] for r in read_journal(Path(run, "journal.jsonl")) if r["event"] == "step"]


@pytest.mark.parametrize(
    ("signum", "raised", "event", "last"),
    [
        (signal.SIGINT, KeyboardInterrupt, "step", 3),
        (signal.SIGTERM, SystemExit, "step", 3),
        (signal.SIGTERM, SystemExit, "finish", 4),
    ],
)
def test_a_signal_saves_first(
    signum: signal.Signals, raised: type[BaseException], event: str, last: int
) -> None:
    changes = {**TINY, "training.log_every": 1, "training.save_every": 0}
    changes["training.save_minutes"] = 60.0

    def interrupt(record: dict[str, Any]) -> None:
        if record["event"] == event and record["step"] == last:
            os.kill(os.getpid(), signum)

    before = signal.getsignal(signum)
    with pytest.raises(raised, match="143" if signum == signal.SIGTERM else "stopped at step"):
        regard.train(**BY_NAME, out="run", changes=changes, progress=interrupt)
    assert signal.getsignal(signum) == before
    assert len(list(Path("run/checkpoints").glob("step-*"))) == 1
    # The lock is free, and nothing is done twice.
    regard.train(**BY_NAME, out="run", changes=changes)
    assert steps_of("run") == [1, 2, 3, 4]


def test_another_thread_can_train() -> None:
    """Where signals cannot be handled."""
    done: list[Path] = []
    training = threading.Thread(
        target=lambda: done.append(regard.train(**BY_NAME, out="run", changes=TINY))
    )
    training.start()
    training.join()
    assert done == [Path("run")]


def test_a_run_that_failed_can_be_continued() -> None:
    """Even while its exception, and so its frames, are kept, as an interactive session does."""

    def fail(record: dict[str, Any]) -> None:
        if record["event"] == "save":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as failure:
        regard.train(**BY_NAME, out="run", changes=TINY, progress=fail)
    later = {**TINY, "training.steps": 6}
    with pytest.raises(RecipeError, match="was begun with another recipe"):
        regard.train(**BY_NAME, out="run", changes=later)
    regard.train(**BY_NAME, out="run", changes=later, accept_changes=True)
    assert failure.tb is not None
    assert steps_of("run")[-1] == 6


def test_a_model_begins_with_another() -> None:
    first = regard.train(**BY_NAME, out="first", changes=TINY)
    second = regard.train(
        source="train.de", target="train.en", out="second", start_from=first,
        changes={"training.steps": 6}, micro_batches=2,
    )  # fmt: skip
    assert (second / "tokenizer.json").read_bytes() == (first / "tokenizer.json").read_bytes()
    [begun] = [r for r in read_journal(second / "journal.jsonl") if r["event"] == "begin"]
    assert Path(begun["model"]) == first.resolve()
