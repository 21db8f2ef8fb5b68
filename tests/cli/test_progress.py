"""The bars that long commands show on a terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from regard.cli import progress
from regard.data.aligned import Progress


def test_training_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "console", lambda: console)
    said: list[str] = []
    monkeypatch.setattr(progress, "note", said.append)
    start = {"event": "start", "step": 0, "steps": 9, "parameters": 10, "pairs": 2, "vocabulary": 3,
             "batches_per_epoch": 1, "dtype": "fp32", "device": "cpu", "threads": 1}  # fmt: skip
    step = {"event": "step", "step": 4, "epoch": 0.5, "loss": 1.0, "rate": 0.1,
            "tokens_per_second": 5.0, "seconds": 40.0}  # fmt: skip
    cooldown = {"event": "cooldown", "step": 5, "ends": 8}
    tried = [{"checkpoints": 9, "loss": 1.5}, {"checkpoints": 7, "loss": 1.0}]
    averaged = {"event": "averaged", "tried": tried}
    settings = [{"beam": 6, "alpha": 1.2, "bleu": 30.0}]
    tuned = {"event": "tuned", "sentences": 1014, "tried": settings}
    for minutes, place in ((0.0, "5/9"), (1.0, "5 ")):
        with progress.TrainingDisplay() as display:
            begun = start | {"minutes": minutes}
            for record in (begun, step, step | {"step": 5}, cooldown, averaged, tuned):
                display(record)
        assert place in shown.getvalue()
    assert said[-3] == "from step 6 to 8, the learning rate also falls to 0 in a straight line"
    assert said[-2].startswith("7 checkpoints are averaged, the best of 2 numbers")
    over = {"event": "over", "step": 8, "factor": 0.0, "left": 2.0}
    display(over)
    display(over | {"factor": 0.03})
    assert "is over" not in said[-1]
    display(over | {"left": 20.0})
    assert said.pop().startswith("the cooldown is over 20 s before the time, since steps took less")
    display(over | {"factor": 0.214})
    assert said.pop().endswith(": the learning rate has fallen to 21%, not to 0")
    display(averaged | {"tried": [{"checkpoints": 1, "loss": 1.0}]})
    assert said.pop().startswith("one checkpoint is taken, the best of 1 numbers")
    assert said[-1].startswith(
        "beam 6 and alpha 1.2 are chosen from 1 settings tried on 1,014 sent"
    )


@pytest.mark.parametrize(
    ("scores", "shown"),
    [
        ({"bleu": 9.5, "bleu_tokenizer": "13a"}, "perplexity 2.000  BLEU 9.50"),
        ({"bleu": 9.5, "bleu_tokenizer": "char"}, "perplexity 2.000  BLEU (char) 9.50"),
        ({"f1": 9.5}, "perplexity 2.000  F1 9.50"),
    ],
)
def test_a_validation_names_the_words_of_its_bleu(
    scores: dict[str, float | str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "note", said.append)
    progress.TrainingDisplay()({"event": "validation", "step": 3, "perplexity": 2.0, **scores})
    assert said == [f"validation after step 3: {shown}"]


@pytest.mark.parametrize("minutes, left", [(0.0, "0:00:40"), (60.0, "0:00:40"), (1.0, "0:00:30")])
def test_what_is_left_is_told_by_what_ends_first(
    monkeypatch: pytest.MonkeyPatch, minutes: float, left: str
) -> None:
    """Ten seconds a step: step 3 of 7 comes after 30 seconds of the time that is given."""
    said: list[str] = []
    monkeypatch.setattr(progress, "note", said.append)
    display = progress.TrainingDisplay()
    display({"event": "start", "step": 0, "steps": 7, "minutes": minutes, "parameters": 10,
             "pairs": 2, "vocabulary": 3, "batches_per_epoch": 1, "dtype": "fp32",
             "device": "cpu", "threads": 1})  # fmt: skip
    for step in (1, 2, 3):
        monkeypatch.setattr(progress.time, "monotonic", lambda: 1000.0 + 10 * step)  # noqa: B023
        display({"event": "step", "step": step, "epoch": 0.5, "loss": 1.0, "rate": 0.1,
                 "tokens_per_second": 5.0, "seconds": 10.0 * step})  # fmt: skip
    assert said[-1].endswith(f"{left} left")


def test_each_reading_has_a_speed_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage reads the gold trees and then the silver trees, both with 400 trees a second."""
    said: list[str] = []
    monkeypatch.setattr(progress, "note", said.append)
    display = progress.PreparationDisplay("trees")
    for now, done, total, trees in ((0, 0, 100, 0), (100, 100, 100, 40_000), (100, 0, 10_000, 0),
                                    (111, 11, 10_000, 4_400)):  # fmt: skip
        monkeypatch.setattr(progress.time, "monotonic", lambda: now)  # noqa: B023
        display(Progress("encode", done, total, trees))
    assert said[-1].startswith("encoding: 0%, 4,400 trees, 400 trees/s, ")
    [task] = display._bar.tasks
    assert (task.completed, task.total) == (11, 10_000)
    display(Progress("survey", 9, 9, 1))
    assert said[-1].startswith("checking: 100%, 1 tree, ")


def test_square_brackets_in_the_name_of_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "console", lambda: console)
    blocks = SimpleNamespace(source="news[de]/[/de].txt")
    with progress.BulkDisplay(blocks) as display:  # type: ignore[arg-type]
        display.checking(lambda lines, first: 0)([], 4000)
    assert "checking news[de]/[/de].txt: 4,000 lines" in shown.getvalue()
