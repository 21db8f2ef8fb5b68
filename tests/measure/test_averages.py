"""How many checkpoints are averaged, chosen on the validation set."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.data.pairs import Pairs
from regard.measure.validation import loss_and_accuracy
from regard.run.journal import read_journal
from regard.run.model_directory import open_model
from run.copying import strings


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "text").write_text("\n".join(strings(60, seed=3)) + "\n")
    changes = {"model.layers": 1, "model.d_model": 16, "model.d_ff": 16, "training.steps": 12,
               "training.save_every": 2, "training.average": 6, "training.keep": 6,
               "tokenizer.vocabulary": 300, "training.tune": True, "search.max_extra": 2,
               "data.held_out": 9, "data.max_length": 32, "data.row_length": 32,
               "training.warmup_steps": 4}  # fmt: skip
    text = tmp_path / "text"
    return {"source": text, "target": text, "out": tmp_path / "run", "recipe": "small",
            "changes": changes}  # fmt: skip


def averaged(out: Path) -> list[dict[str, Any]]:
    [record] = [one for one in read_journal(out / "journal.jsonl") if one["event"] == "averaged"]
    return list(record["tried"])


def test_the_model_is_the_average_with_the_lowest_loss(given: dict[str, Any]) -> None:
    out = regard.train(**given)
    tried = averaged(out)
    best = min(tried, key=lambda one: one["loss"])
    numbers = [one["checkpoints"] for one in tried]
    assert numbers == [*[6, 4, 2][: len(tried) - 1], 1]
    assert len(tried) > 2  # a model that learns fast: the first steps are far from the last
    model = open_model(out)
    newest = [12, 10, 8, 6, 4, 2][: best["checkpoints"]]
    assert model.manifest["averaged"] == newest[::-1]
    assert json.loads((out / "result.json").read_text())["averaged"] == newest[::-1]
    loss, _ = loss_and_accuracy(model.network, Pairs.open(out / "data", "valid"), model.recipe)
    assert loss == pytest.approx(best["loss"], abs=1e-5)


def test_without_time_to_measure_averages_one_checkpoint_may_still_be_the_best(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.measure.tuning.AVERAGES", 0.0)
    monkeypatch.setattr("regard.measure.averages.validator", lambda *_: lambda _: {"loss": 1e3})
    given["changes"] |= {"training.minutes": 60.0}
    out = regard.train(**given)
    records = read_journal(out / "journal.jsonl")
    [last] = [one for one in records if one["event"] == "validation" and one["step"] == 12]
    assert averaged(out) == [
        {"checkpoints": 6, "loss": 1e3},
        {"checkpoints": 1, "loss": last["loss"]},
    ]
    assert open_model(out).manifest["averaged"] == [12]


def test_stopped_while_it_averages_it_begins_with_that_again_and_then_stays(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given["changes"] |= {"training.best": "bleu", "training.validate_sentences": 1}

    def stopped(_: object) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGINT)
        return {"loss": 1.0}

    with monkeypatch.context() as patch:
        patch.setattr("regard.measure.averages.validator", lambda *_: stopped)
        with pytest.raises(KeyboardInterrupt, match="stopped at step 12, which is saved"):
            regard.train(**given)
    out = regard.train(**given)
    assert len(averaged(out)) > 1
    weights, tried = (out / "model.safetensors").read_bytes(), averaged(out)
    regard.train(**given)
    assert (out / "model.safetensors").read_bytes() == weights
    assert averaged(out) == tried


def test_without_some_of_its_checkpoints_the_model_stays(given: dict[str, Any]) -> None:
    given["changes"] |= {"training.best": "loss", "training.validate_every": 2}
    out = regard.train(**given)
    made = open_model(out).manifest["averaged"]
    weights = (out / "model.safetensors").read_bytes()
    shutil.rmtree(out / f"checkpoints/step-{made[0]}")
    regard.train(**given)
    assert (out / "model.safetensors").read_bytes() == weights
    assert open_model(out).manifest["averaged"] == made
