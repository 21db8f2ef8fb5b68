"""An engine writes what regard writes for the same weights, by the same search."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engines.exported_models import SHAPES, untrained
from exchange.brief import brief_certificates  # noqa: F401
from regard.engines.exported import open_exported
from regard.engines.opening import load_exported
from regard.engines.translator import EngineTranslator
from regard.engines.with_ctranslate2 import CTranslate2Model
from regard.engines.with_onnx import OnnxTranslator
from regard.errors import ModelError, RecipeError, RegardError
from regard.exchange.exporting import write_export
from regard.exchange.parts import MOST_POSITIONS, tables_of
from regard.files.manifest import seal, unseal
from regard.run.model_directory import open_model
from regard.text.foreign import MosesTokenizer
from regard.translation import Translation, Translator, load
from run.copying import RECIPE, strings

pytestmark = pytest.mark.usefixtures("brief_certificates")
LINES = [*strings(7, seed=2, longest=19), "", "x"]


@pytest.fixture(scope="module", params=SHAPES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("model") / "model", SHAPES[request.param])


SEARCHES = [(1, 0.6, "gnmt"), (4, 0.6, "gnmt"), (3, 0.0, "length")]


def found_by(translator: Translator | EngineTranslator) -> list[list[list[Translation]]]:
    """What is found by each of the searches."""
    found = []
    for beam, alpha, penalty in SEARCHES:
        search = {"beam": beam, "alpha": alpha, "penalty": penalty, "finish": "beam"}
        translator.recipe = translator.recipe.but(max_extra=9, **search)
        found.append(list(translator.stream(LINES, n_best=min(2, beam))))
    return found


@pytest.fixture(scope="module")
def found_by_us(model: Path) -> list[list[list[Translation]]]:
    return found_by(load(model, exact=False))


def pair(engine: str, model: Path, folder: Path) -> tuple[Translator, EngineTranslator]:
    """The model, and what it is exported to."""
    write_export(engine, model, folder / engine)
    return load(model, exact=False), load_exported(folder / engine, engine)


def texts(found: list[list[Translation]]) -> list[list[str]]:
    return [[translation.text for translation in best] for best in found]


def scores(found: list[list[Translation]]) -> list[float]:
    return [translation.score for best in found for translation in best]


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_greedy_and_beam_search(
    engine: str, model: Path, found_by_us: list[list[list[Translation]]], tmp_path: Path
) -> None:
    _, theirs = pair(engine, model, tmp_path)
    for found, by_engine in zip(found_by_us, found_by(theirs), strict=True):
        assert texts(found) == texts(by_engine)
        assert scores(by_engine) == pytest.approx(scores(found), rel=1e-4)


@pytest.mark.parametrize(
    ("logits", "alpha"),
    [({"never": 1.0}, 0.0), ({"end": 2.0}, 1.0)],
    ids=["<pad> is likely", "a later output is better"],
)
def test_what_is_seldom_is_searched_step_by_step(
    logits: dict[str, float], alpha: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stepped = untrained(tmp_path / "model", seed=2, **logits), []
    step = CTranslate2Model.step

    def heard(*given: Any) -> Any:
        stepped.append(given)
        return step(*given)

    ours, theirs = pair("ctranslate2", model, tmp_path)
    monkeypatch.setattr(CTranslate2Model, "step", heard)
    search = {"beam": 4, "alpha": alpha, "penalty": "length", "finish": "beam", "max_extra": 9}
    for translator in (ours, theirs):
        translator.recipe = translator.recipe.but(**search)
    found, by_engine = (list(t.stream(LINES, n_best=2)) for t in (ours, theirs))
    assert texts(found) == texts(by_engine)
    assert scores(by_engine) == pytest.approx(scores(found), rel=1e-4)
    assert stepped


@pytest.mark.parametrize("n_best", [0, 5])
@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_n_best_is_between_1_and_the_beam(engine: str, n_best: int, tmp_path: Path) -> None:
    write_export(engine, untrained(tmp_path / "model"), tmp_path / engine)
    translator = load_exported(tmp_path / engine, engine)
    translator.recipe = translator.recipe.but(beam=4, finish="beam")
    with pytest.raises(RecipeError, match=f"n_best = {n_best} must lie between 1 and beam = 4"):
        list(translator.stream(["x"], n_best=n_best))


def test_a_directory_is_opened_by_its_own_engine(tmp_path: Path) -> None:
    model = untrained(tmp_path / "model")
    write_export("onnx", model, tmp_path / "onnx")
    for directory, engine, problem in [
        (model, "onnx", "is a model of regard, not exported for onnx"),
        (tmp_path / "onnx", "ctranslate2", "is exported for onnx, not exported for ctranslate2"),
        (tmp_path / "none", "onnx", "no such directory"),
    ]:
        with pytest.raises(ModelError, match=problem):
            load_exported(directory, engine)
    with pytest.raises(RecipeError, match="unknown engine tensorrt"):
        load_exported(model, "tensorrt")
    damaged = tmp_path / "onnx" / "decoder.onnx"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(ModelError, match=r"decoder\.onnx: damaged"):
        load_exported(tmp_path / "onnx", "onnx")


@pytest.mark.parametrize("engine", ["onnx", "ctranslate2"])
def test_a_manifest_without_positions_and_a_damaged_vocabulary(engine: str, tmp_path: Path) -> None:
    write_export(engine, untrained(tmp_path / "model"), tmp_path / "out")
    about = unseal(tmp_path / "out")
    seal(tmp_path / "out", about["files"], {"exported": engine})
    with pytest.raises(ModelError, match="no number of positions: export it again"):
        load_exported(tmp_path / "out", engine)
    if engine == "ctranslate2":
        (tmp_path / "out" / "shared_vocabulary.json").write_text("3")
        seal(tmp_path / "out", about["files"], {"exported": engine, "positions": 90})
        with pytest.raises(ModelError, match=r"CTranslate2 refuses it: .* must be array"):
            load_exported(tmp_path / "out", engine)


def test_pieces_of_subword_nmt_are_written_as_in_their_own_vocabulary(tmp_path: Path) -> None:
    codes, pieces = tmp_path / "codes", ["<unk>", "lo@@", "lo", "w", "w@@", "er", "low"]
    codes.write_text("#version: 0.2\nl o\nlo w</w>\ne r</w>\n", "utf-8")
    known = ["<pad>", "<s>", "</s>", *pieces]
    tokenizer = MosesTokenizer.read({piece: i for i, piece in enumerate(known)}, codes=codes)
    model = untrained(tmp_path / "model", RECIPE.but(beam=1), tokenizer=tokenizer)
    ours, theirs = pair("ctranslate2", model, tmp_path)
    assert json.loads((tmp_path / "ctranslate2" / "shared_vocabulary.json").read_text()) == known
    found, by_engine = (list(t.stream(["lower low w"])) for t in (ours, theirs))
    assert texts(found) == texts(by_engine) != [[""]]


@pytest.mark.parametrize("longest", [40, 5000, 10**6])
def test_an_export_accepts_sentences_as_long_as_it_has_positions(
    longest: int, tmp_path: Path
) -> None:
    model = untrained(tmp_path / "model", RECIPE.but(max_length=longest, max_extra=5))
    positions = len(tables_of(open_model(model)).source)
    assert positions == {40: 2048, 5000: 5000, 10**6: MOST_POSITIONS}[longest] + 5
    if longest == 5000:
        write_export("onnx", model, tmp_path / "onnx")
        assert load_exported(tmp_path / "onnx", "onnx").longest == 5000
        exported = open_exported(tmp_path / "onnx", "onnx")
        fewer = replace(exported, manifest=exported.manifest | {"positions": 2053})
        assert OnnxTranslator(fewer, 1).longest == 2053


def test_another_search_is_refused(tmp_path: Path) -> None:
    write_export("ctranslate2", untrained(tmp_path / "model"), tmp_path / "out")
    theirs = load_exported(tmp_path / "out", "ctranslate2")
    with pytest.raises(RecipeError, match=r"--set search\.finish=beam"):
        theirs.translate(["1 2"])
    with pytest.raises(RegardError, match="shows no attention"):
        _ = theirs.network
