"""Parts are done once, kept, and judged; a stopped command goes on where it was."""

import json
from pathlib import Path

import pytest

from regard.claims import trainings
from regard.claims.parts import Size
from regard.claims.registry import CLAIMS, claims_named
from regard.claims.trying import try_claims
from regard.errors import DataError, Diverged, RecipeError, TrainingError
from regard.files.locks import locked
from regard.parts.kept import Finished, Measured
from regard.parts.verdicts import Judgement
from regard.run.journal import read_journal

TINY = Size(steps=3, pairs=500, tested=5)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("claims")
    trainings.prepare_corpora(out, TINY)
    return out


@pytest.fixture
def out(corpus: Path, tmp_path: Path) -> Path:
    """A directory whose corpora are prepared."""
    for folder in corpus.iterdir():
        (tmp_path / folder.name).symlink_to(folder)
    return tmp_path


def test_a_stopped_command_goes_on(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(done: Finished) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_claims([CLAIMS["mask"]], out, [1], size=TINY, heard=stop)
    kept = out / "parts" / "base-1.json"
    before = kept.read_bytes(), kept.stat().st_mtime_ns
    measured = trainings.measured

    def fails(*_: object) -> Measured:
        raise KeyboardInterrupt  # when the second training is over

    monkeypatch.setattr(trainings, "measured", fails)
    with pytest.raises(KeyboardInterrupt):
        try_claims([CLAIMS["mask"]], out, [1], size=TINY)
    monkeypatch.setattr(trainings, "measured", measured)
    heard: list[Finished] = []
    [outcome] = try_claims([CLAIMS["mask"]], out, [1], size=TINY, heard=heard.append)
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before
    assert [(d.part, d.number, d.total) for d in heard] == [("base", 1, 2), ("no-mask", 2, 2)]
    steps = [r for r in read_journal(out / "runs/no-mask-1/journal.jsonl") if r["event"] == "save"]
    assert len(steps) == 1  # the training was not done again
    assert outcome.verdict is Judgement.UNDECIDED  # of one seed
    result = json.loads((out / "result.json").read_text())
    assert result["seeds"] == [1]
    assert result["claims"][0]["findings"][0]["name"] == "training"


def test_numbers_of_a_training(out: Path) -> None:
    numbers = trainings.Trained("short-learned").run(1, out, TINY)
    assert numbers.keys() == trainings._diverged().keys()
    assert numbers["perplexity"] > 100
    assert 0 <= numbers["accuracy"] < 20


def test_a_training_that_diverges_guesses(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def diverge(**_: object) -> None:
        raise Diverged("step 1: the loss is nan")

    def refuse(**_: object) -> None:
        raise TrainingError("no GPU")

    monkeypatch.setattr(trainings, "train", diverge)
    numbers = trainings.Trained("no-warm-up").run(1, out, TINY)
    assert (numbers["bleu"], numbers["perplexity"]) == (0, trainings.VOCABULARY)
    monkeypatch.setattr(trainings, "train", refuse)  # not every error is a divergence
    with pytest.raises(TrainingError, match="no GPU"):
        trainings.Trained("no-warm-up").run(1, out, TINY)


def test_processes_give_the_same_numbers(tmp_path: Path) -> None:
    claims = claims_named(["convolutions"])
    here = try_claims(claims, tmp_path / "a", [1, 2])
    there = try_claims(claims, tmp_path / "b", [1, 2], jobs=2)
    assert here == there
    more = try_claims(claims, tmp_path / "b", [1, 2, 3])
    assert more[0].findings[0].figures[0].values[:2] == here[0].findings[0].figures[0].values


def test_parts_of_another_size_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "parts" / "base-1.json"
    path.parent.mkdir()
    path.write_text('{"settings": "of another size", "numbers": {}}')
    with pytest.raises(DataError, match=r"other settings.*choose another --out"):
        try_claims([CLAIMS["mask"]], tmp_path, [1], size=TINY)
    path.write_text('{"settings": 5')
    with pytest.raises(DataError, match="cannot be read as a finished part: remove it"):
        try_claims([CLAIMS["mask"]], tmp_path, [1], size=TINY)


def test_the_result_of_a_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").touch()
    (tmp_path / "result.json").write_text("a run's")
    with pytest.raises(DataError, match="a run or a model: choose another --out"):
        try_claims(claims_named(["positions"]), tmp_path, [1])
    assert (tmp_path / "result.json").read_text() == "a run's"


def test_a_directory_of_another_size_is_refused(out: Path) -> None:
    with pytest.raises(DataError, match=r"another size, .*\"steps\": 3.*choose another --out"):
        try_claims([CLAIMS["mask"]], out, [1], size=TINY._replace(steps=4))
    assert not (out / "parts").exists()


def test_text_that_no_command_wrote_is_not_learned_from(tmp_path: Path) -> None:
    own = tmp_path / "corpus" / "train.de"
    own.parent.mkdir()
    own.write_text("Mein Text.\n")
    with pytest.raises(DataError, match="corpus: is not empty: choose another --out"):
        try_claims([CLAIMS["mask"]], tmp_path, [1], size=TINY)
    assert not (tmp_path / "size.json").exists()


def test_one_process_writes_the_corpora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> None:
        with locked(tmp_path / ".prepare.lock", wait=False) as is_mine:
            assert not is_mine
        raise KeyboardInterrupt

    monkeypatch.setattr(trainings, "write_corpus", write)
    with pytest.raises(KeyboardInterrupt):
        trainings.prepare_corpora(tmp_path, TINY)


def test_claims_by_name() -> None:
    assert [c.name for c in claims_named(["mask", "positions"])] == ["positions", "mask"]
    assert len(claims_named([])) == len(CLAIMS)
    with pytest.raises(RecipeError, match="unknown claim masks: did you mean mask"):
        claims_named(["masks"])
