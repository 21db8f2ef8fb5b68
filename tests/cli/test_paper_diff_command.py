"""`regard paper-diff` names what departs, and what was published."""

import json
from typing import Any

import pytest

from cli.refusing import World, refused, regard

EXACT = ["base", "--set", "data.layout=grouped", "--set", "training.precision=fp32"]

PLANTED = [
    "model.layers=12",
    "model.decoder_layers=3",
    "model.d_ff=1024",
    "model.heads=4",
    "model.d_k=32",
    "model.dropout=0.3",
    "model.attention_dropout=0.1",
    "model.relu_dropout=0.1",
    "model.positions=learned",
    "tokenizer.kind=wordpiece",
    "tokenizer.vocabulary=32000",
    "data.max_length=100",
    "data.deduplicate=true",
    "data.target_tokens=4096",
    "data.layout=packed",
    "data.subword_dropout=0.1",
    "training.steps=50000",
    "training.rate=2.0",
    "training.warmup_steps=8000",
    "training.beta2=0.997",
    "training.epsilon=1e-8",
    "training.label_smoothing=0.0",
    "training.accumulate=2",
    "training.precision=bf16",
    "training.save_every=250",
    "training.average=1",
    "training.best=loss",
    "training.tune=true",
    "search.beam=5",
    "search.alpha=1.0",
    "search.max_extra=100",
]


def shown(*argv: Any) -> dict[str, Any]:
    result = regard("paper-diff", *argv, "--json")
    assert result.status == 0, result
    return json.loads(result.stdout)


@pytest.mark.parametrize("planted", PLANTED)
def test_what_is_planted_is_named(planted: str) -> None:
    field, _, _ = planted.partition("=")
    [*found] = [one["here"] for one in shown(*EXACT, "--set", planted)["departs"]]
    assert any(f"{field} = " in here for here in found)


def test_the_exact_recipe_departs_in_nothing_and_that_is_said() -> None:
    assert shown(*EXACT)["departs"] == []
    said = regard("paper-diff", *EXACT).stdout
    assert "Nothing departs from the paper, as far as it can be known." in said
    assert "Cannot be known: the paper does not say" in said
    assert "Cannot be known: a recipe does not show" in said
    assert "Departs" not in said


def test_base_departs_in_its_batches_and_precision() -> None:
    found = shown("base")
    assert [one["fields"][0] for one in found["departs"]] == ["data.layout", "training.precision"]
    assert found["closest"]["published"][0].startswith("Table 2: BLEU 27.3")
    assert found["departs"][0]["quote"].startswith("Sentence pairs were batched together")


def test_a_row_is_named_with_what_was_published() -> None:
    said = regard("paper-diff", "base", "--set", "model.dropout=0.2").stdout
    of_base, _, of_d2 = said.partition("\nClosest to D2: base with model.dr")
    assert of_base.startswith("Compared with base: the base model.\n  Table 2: BLEU 27.3")
    assert "perplexity 4.95 and BLEU 25.5 on newstest2013" in of_d2
    assert shown("base", "--row", "A1")["published"] == shown("A1")["closest"]["published"]
    assert "model.dropout = 0.2" in said.partition("Departs from the paper")[2]
    assert shown("small", "--row", "base")["row"] == "base"


def test_a_run_and_a_model(world: World) -> None:
    run = shown(world.made / "run")
    here = {one["name"]: one["here"] for one in run["departs"]}
    assert here["duration"] == "4 steps were made"
    assert here["sub-words"].startswith("tokenizer.vocabulary = 300")
    assert "precision" not in here
    assert here["averaging"] == "the mean of 2: steps 3, 4"
    assert here["spacing of checkpoints"] == "the averaged ones are 1 steps apart"
    model = regard("paper-diff", world.made / "model")
    assert "Cannot be known: this directory does not show" in model.stdout
    assert "the mean of 2: steps 3, 4" in model.stdout


def test_another_code_base() -> None:
    found = shown("base", "--against", "fairseq")
    assert "transformer_wmt_en_de" in found["against"]
    assert {"field": "training.epsilon", "theirs": 1e-8, "ours": 1e-9} in found["fields"]
    said = regard("paper-diff", "base", "--against", "t2t").stdout
    assert "training.rate\n    theirs    2.0\n    here      1.0\n" in said
    assert 'model.norm\n    theirs    "pre"\n    here      "post"\n' in said


def test_refusals(world: World) -> None:
    assert "unknown recipe bass: did you mean base?" in refused("paper-diff", "bass")
    assert "unknown row A9" in refused("paper-diff", "base", "--row", "A9")
    assert "unknown code base t3t" in refused("paper-diff", "base", "--against", "t3t")
    assert "--set goes with a recipe" in refused(
        "paper-diff", world.made / "run", "--set", "model.layers=1"
    )
    assert "leave out --against" in refused("paper-diff", "base", "--row", "A1", "--against", "t2t")
    assert "is prepared data: name a run" in refused("paper-diff", world.made / "data")
    assert "neither a run nor a model" in refused("paper-diff", world.folder)
