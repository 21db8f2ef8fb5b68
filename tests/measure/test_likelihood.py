"""Likelihoods are those of the plain model, whatever other pairs share a batch."""

import pytest
import torch
import torch.nn.functional as F

from regard.arithmetic.choose import for_decoding
from regard.data.rows import one_per_row
from regard.equations import Arithmetic
from regard.errors import DataError, ModelError
from regard.measure.likelihood import likelihoods
from regard.text.tokenizer import BOS, EOS, Tokenizer
from regard.transformer import Transformer
from regard.translation import Translator
from run.copying import RECIPE, strings

TOKENIZER = Tokenizer.learn(strings(97, seed=1), "bpe", 300)
SOURCES = [*strings(23, seed=2, longest=19), "", "7"]
TARGETS = [*strings(23, seed=3, longest=19), "1 2", ""]


def translator(longest: int = 61, *, laid_out: bool = False) -> Translator:
    torch.manual_seed(3)
    model = Transformer(RECIPE.model, TOKENIZER.size)
    if laid_out:
        model.compute_by(for_decoding(model, torch.device("cpu"), "fp32", exact=None))
    return Translator(model, TOKENIZER, RECIPE.search, longest)


@torch.no_grad()
def alone(model: Transformer, source: str, target: str) -> float:
    x, y = ([*pieces, EOS] for pieces in TOKENIZER.encode([source, target]))
    logits = model.eval()(one_per_row([x]), one_per_row([[BOS, *y[:-1]]]))[0]
    return -float(F.cross_entropy(logits, torch.tensor(y), reduction="sum"))


@pytest.mark.parametrize("laid_out", [False, True])
def test_each_pair_is_as_likely_as_alone(monkeypatch: pytest.MonkeyPatch, laid_out: bool) -> None:
    monkeypatch.setattr("regard.measure.likelihood.AT_ONCE", 64)
    monkeypatch.setattr(Arithmetic, "window", 9)
    plain = translator().model
    found = list(likelihoods(translator(laid_out=laid_out), SOURCES, TARGETS))
    for one, source, target in zip(found, SOURCES, TARGETS, strict=True):
        assert one.log_probability == pytest.approx(alone(plain, source, target), rel=1e-5)
        assert one.pieces == len(TOKENIZER.encode([target])[0]) + 1
        assert one.score == pytest.approx(one.log_probability / ((5 + one.pieces) / 6) ** 0.6)


def test_what_is_too_long_or_no_number_is_refused() -> None:
    ten, sixty = "1 2 3 4 5 6 7 8 9 0", " ".join(60 * "1")
    assert len(list(likelihoods(translator(9), ["1", "2"], ["3", ten]))) == 2
    with pytest.raises(DataError, match=r"^source:2: \d+ pieces, and this model takes at most 9:"):
        list(likelihoods(translator(9), ["1", ten], ["3", "4"]))
    too_long = r"^out.txt:1: \d+ pieces, and this model takes at most 18:"
    with pytest.raises(DataError, match=too_long):
        list(likelihoods(translator(9), ["1"], [sixty], ("in.txt", "out.txt")))
    broken = translator()
    broken.model.embedding.tokens.weight.data[5] = torch.nan
    with pytest.raises(ModelError, match="its weights are damaged"):
        list(likelihoods(broken, ["1"], ["2"]))
    for targets in (["2"], ["2", "3", "4"]):
        with pytest.raises(ValueError, match=f"2 sources and {len(targets)} targets"):
            list(likelihoods(translator(9), ["1", "2"], targets))
