"""An imported Marian model is written back as what it was: files, ids and weights."""

import json
from pathlib import Path

import pytest
import torch

from exchange.brief import brief_certificates  # noqa: F401
from exchange.marian_models import transformers, write_marian
from exchange.test_from_hf import SHAPES
from regard.errors import ModelError
from regard.exchange import certificate as certificates
from regard.exchange import exporting, importing
from regard.exchange.from_hf import read_hf
from regard.run.model_directory import write_model
from regard.text.tokenizer import BOS

CHOSEN = ["usual", "odd heads", "separate, untied", "ids within", "another start"]
CHOSEN += ["a start that is written", "pad is written", "renormalised"]


pytestmark = pytest.mark.usefixtures("brief_certificates")


@pytest.mark.parametrize("shape", CHOSEN)
def test_it_is_written_back(shape: str, tmp_path: Path) -> None:
    theirs, back = tmp_path / "theirs", tmp_path / "back"
    before = write_marian(theirs, **SHAPES[shape]).state_dict()
    importing.write_imported(tmp_path / "ours", read_hf(theirs))
    certificate = exporting.write_export("hf", tmp_path / "ours", back)
    assert certificate.encoded == certificate.greedy == certificate.searched == 1
    for name in ("source.spm", "target.spm", "vocab.json", "target_vocab.json"):
        assert (theirs / name).exists() == (back / name).exists()
        assert not (back / name).exists() or (back / name).read_bytes() == (
            (theirs / name).read_bytes()
        )
    after = transformers.MarianMTModel.from_pretrained(back).state_dict()
    # An entry that is excluded from the softmax has a bias that no output depends on.
    free = {"final_logits_bias"} if shape == "renormalised" else set()
    same = {name for name in after if torch.equal(after[name], before[name])}
    assert same | free >= before.keys() - {"model.shared.weight"}
    given, found = (
        json.loads((folder / "generation_config.json").read_text("utf-8"))
        for folder in (theirs, back)
    )
    for key in given.keys() - {"transformers_version"}:
        assert given[key] == found[key], key


def test_trained_further_its_decoder_begins_with_the_padding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The export gives the padding the embedding of our <s>, if the padding is never written."""
    monkeypatch.setattr(certificates, "WRITTEN", 8)
    for shape in ("renormalised", "a start that is written"):
        theirs, ours, back = (tmp_path / f"{shape} {name}" for name in ("theirs", "ours", "back"))
        write_marian(theirs, **SHAPES[shape])
        foreign = read_hf(theirs)
        foreign.weights["embedding.tokens.weight"][BOS] += 1.0  # training changes <s>
        write_model(ours, foreign.recipe, foreign.tokenizer, foreign.weights, {"step": 1})
        if shape == "renormalised":
            certificate = exporting.write_export("hf", ours, back)
            assert certificate.greedy == certificate.searched == 1
            config = json.loads((back / "config.json").read_text("utf-8"))
            assert config["decoder_start_token_id"] == config["pad_token_id"]
        else:
            with pytest.raises(ModelError, match="<s>, which was trained further"):
                exporting.write_export("hf", ours, back)
