"""A certificate holds what was compared; what differs too much is not converted."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from regard.errors import ModelError, RegardError
from regard.exchange.certificate import CERTIFICATE, Certificate, certify, unproved
from regard.exchange.certified import write_certified
from regard.exchange.sentences import SENTENCES
from regard.exchange.sides import OurSide
from regard.files.manifest import unseal
from regard.run.model_directory import Model, open_model, write_model
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from run.copying import RECIPE, strings

TOKENIZER = Tokenizer.learn(strings(97, seed=1), "bpe", 300)
ABOUT = {"conversion": "hf to regard", "files": {"model.safetensors": "0" * 64}, "longest": 61}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("certificate") / "model"
    torch.manual_seed(5)
    weights = dict(Transformer(RECIPE.model, TOKENIZER.size).named_parameters())
    write_model(folder, RECIPE, TOKENIZER, weights, {"step": 1})
    return open_model(folder)


def changed(model: Model, change: Callable[[torch.Tensor], object]) -> Model:
    """The same model with another embedding matrix."""
    other = Transformer(model.recipe.model, model.tokenizer.size).eval()
    other.load_state_dict(model.network.state_dict())
    with torch.no_grad():
        change(other.embedding.tokens.weight)
    return replace(model, network=other)


def test_a_model_equals_itself(model: Model) -> None:
    certificate = certify(OurSide(model), OurSide(model), **ABOUT)
    assert certificate.difference == 0 < certificate.range
    assert certificate.encoded == certificate.greedy == certificate.searched == 1
    assert certificate.sentences == len(SENTENCES) >= 25
    assert {"regard", "torch"} <= certificate.versions.keys()
    assert certificate.date.startswith("20")


def test_rounding_is_measured_and_more_is_refused(model: Model) -> None:
    nearly = OurSide(changed(model, lambda weight: weight.mul_(1 + 2**-22)))
    certificate = certify(OurSide(model), nearly, **ABOUT)
    assert 0 < certificate.difference < 1e-4 * certificate.range
    other = OurSide(changed(model, lambda weight: weight[200].add_(0.01)))
    with pytest.raises(ModelError, match=r"logits differ by .*: not converted"):
        certify(OurSide(model), other, **ABOUT)
    lower = certify(OurSide(model), other, **ABOUT, tolerance=None)
    assert lower.difference > 1e-4 * lower.range


def test_a_nan_is_refused(model: Model) -> None:
    broken = OurSide(changed(model, lambda weight: weight[200].fill_(torch.nan)))
    for sides in ((OurSide(model), broken), (broken, broken)):
        with pytest.raises(ModelError):
            certify(*sides, **ABOUT)


class NotANumberOnce(OurSide):
    """A side whose logits are NaN for the first sentence only."""

    asked = False

    def logits(self, source: Sequence[int], target: Sequence[int]) -> NDArray[np.float32]:
        logits = super().logits(source, target)
        if not self.asked:
            self.asked = True
            logits[0, 200] = np.nan
        return logits


@pytest.mark.parametrize("tolerance", [1e-4, None])
def test_a_nan_of_one_sentence_is_refused(model: Model, tolerance: float | None) -> None:
    with pytest.raises(ModelError, match=r"logits are NaN or infinite: not converted"):
        certify(OurSide(model), NotANumberOnce(model), **ABOUT, tolerance=tolerance)


class Otherwise(OurSide):
    """A side that cuts capitals in another way and never writes anything."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return super().encode([text.lower() for text in texts])

    def beam(self, sources: object, most: int, beam: int, alpha: float) -> list[list[int]]:
        return [[] for _ in SENTENCES]


def test_shares_are_of_equal_sentences(model: Model) -> None:
    certificate = certify(OurSide(model), Otherwise(model), **ABOUT)
    lower = sum(text == text.lower() for text in SENTENCES)
    assert certificate.encoded == lower / len(SENTENCES)
    assert certificate.searched < 1


def test_it_lies_in_a_sealed_directory_or_nothing_does(tmp_path: Path, model: Model) -> None:
    certificate = unproved("hf to regard", "transformers is not installed", {}, {})
    out = tmp_path / "folder" / "out"

    def fill(folder: Path) -> None:
        (folder / "weights").write_text("1")

    def refuse(folder: Path) -> Certificate:
        raise ModelError("not converted")

    with pytest.raises(ModelError):
        write_certified(out, fill, refuse, {})
    assert not any(tmp_path.iterdir())
    assert write_certified(out, fill, lambda _: certificate, {"imported": "x"}) == certificate
    assert unseal(out)["files"].keys() == {"weights", CERTIFICATE}
    assert unseal(out)["imported"] == "x"
    assert Certificate.read(out) == certificate
    assert Certificate.read(tmp_path) is None
    with pytest.raises(RegardError, match="exists already"):
        write_certified(out, fill, lambda _: certificate, {})
    with pytest.raises(RegardError, match="cannot write: File name too long"):
        write_certified(tmp_path / ("x" * 300), fill, lambda _: certificate, {})


@pytest.mark.parametrize("text", ["", "[]", "{", "{}", '{"date": 1}', "[" * 10**5, "x" * 2**21])
def test_a_damaged_one_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CERTIFICATE).write_text(text)
    with pytest.raises(ModelError, match="convert again"):
        Certificate.read(tmp_path)
