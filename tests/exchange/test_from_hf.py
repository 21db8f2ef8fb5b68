"""Imported MarianMT models compute, search and write what they do in `transformers`."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from cli.refusing import regard
from exchange.marian_models import lines, transformers, write_marian
from regard.data.rows import one_per_row
from regard.exchange import certificate as certificates
from regard.exchange import importing
from regard.exchange.certificate import Certificate, certify
from regard.run.model_directory import Model, open_model
from regard.text.foreign.base import ForeignTokenizer
from regard.text.tokenizer import BOS, EOS

SHAPES: dict[str, dict[str, Any]] = {
    "usual": {"bias": True},
    "layers and ffn differ": {
        "encoder_layers": 3,
        "decoder_layers": 1,
        "encoder_ffn_dim": 7,
        "decoder_ffn_dim": 33,
    },
    "odd heads": {"d_model": 30, "encoder_attention_heads": 6, "decoder_attention_heads": 2},
    "one head": {"d_model": 14, "encoder_attention_heads": 1, "decoder_attention_heads": 7},
    "gelu": {"activation_function": "gelu", "bias": True},
    "relu": {"activation_function": "relu", "scale_embedding": False, "init_std": 1.0},
    "unscaled": {"scale_embedding": False, "init_std": 0.8, "bias": True},
    "untied": {"tie_word_embeddings": False, "seed": 4},
    "separate": {"separate": True, "bias": True},
    "separate, untied": {"separate": True, "tie_word_embeddings": False, "unused": 3},
    "ids within": {"end": 7, "pad": 3, "bias": True},
    "ids at the end": {"end": -1, "pad": -2},
    "pad first": {"end": 5, "pad": 0},
    "another start": {"start": 9, "generation": {"bad_words_ids": [[9]]}},
    "a start that is written": {"start": 9, "bias": True},
    "few positions": {"max_position_embeddings": 40, "bias": True, "ends": 4.0},
    "pad is written": {"forbids_pad": False, "bias": True, "seed": 9},
    "renormalised": {"generation": {"renormalize_logits": True}, "bias": True},
    "more rows than pieces": {"unused": 5, "rows": 6, "bias": True},
    "BPE": {"kind": "bpe", "encoder_layers": 2},
    "pickled": {"pickled": True, "bias": True, "separate": True},
    "longer is better": {"generation": {"length_penalty": 1.7}, "bias": True},
}
TEXTS = [*lines("source", 1, seed=77), "Ω >>x<< xyz 12!"]
EXTRA = 11
"""Tokens that both write at most more than the source has: max_length 12 less its start."""


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short certificate for each import; `test_whole_certificate` makes a whole one."""

    def brief(*sides: Any, **about: Any) -> Certificate:
        return certify(*sides, TEXTS[:1], **about)

    monkeypatch.setattr(importing, "certify", brief)
    monkeypatch.setattr(certificates, "WRITTEN", 8)


def imported(folder: Path, *options: str) -> Model:
    done = regard("import", "hf", folder / "theirs", "--out", folder / "ours", *options)
    assert done.status == 0, done
    return open_model(folder / "ours")


def plain(folder: Path) -> tuple[Any, Any]:
    """The directory as plain `from_pretrained` opens it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
        return model, transformers.MarianTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_logits_and_translations_are_those_of_transformers(
    tmp_path: Path, shape: dict[str, Any]
) -> None:
    write_marian(tmp_path / "theirs", **shape)
    ours = imported(tmp_path)
    model, tokenizer = plain(tmp_path / "theirs")
    sources = tokenizer(TEXTS).input_ids
    assert isinstance(ours.tokenizer, ForeignTokenizer)
    source_ids = ours.tokenizer.order_of("source").foreign_ids
    for text, theirs in zip(TEXTS, sources, strict=True):
        [pieces] = ours.tokenizer.encode([text])
        assert [source_ids[i] for i in [*pieces, EOS]] == theirs
    translated = regard(
        "translate", tmp_path / "ours", "--json", "--no-retry",
        stdin="".join(f"{text}\n" for text in TEXTS).encode(),
    )  # fmt: skip
    found = [json.loads(line) for line in translated.stdout.splitlines()]
    generation = model.generation_config
    for theirs, ours_found in zip(sources, found, strict=True):
        limit = min(len(theirs) + EXTRA, shape.get("max_position_embeddings", 64))
        with torch.inference_mode():
            written = model.generate(
                torch.tensor([theirs]), max_new_tokens=limit, max_length=None,
                return_dict_in_generate=True, output_scores=True,
            )  # fmt: skip
        [text] = tokenizer.batch_decode(written.sequences[:, 1:], skip_special_tokens=True)
        [best] = ours_found["translations"]
        assert best["text"] == text
        assert best["score"] == pytest.approx(float(written.sequences_scores[0]), abs=1e-4)
        _compare_logits(ours, model, theirs, written.sequences[0, 1:].tolist(), generation)


def _compare_logits(
    ours: Model, model: Any, source: list[int], written: list[int], generation: Any
) -> None:
    assert isinstance(ours.tokenizer, ForeignTokenizer)
    ids = torch.tensor(ours.tokenizer.order.foreign_ids)
    to_ours = {foreign: i for i, foreign in enumerate(ids.tolist()) if foreign >= 0}
    source_ids = ours.tokenizer.order_of("source").foreign_ids
    to_source = {foreign: i for i, foreign in enumerate(source_ids)}
    written = [i for i in written if i in to_ours][:20]
    begun = [generation.decoder_start_token_id, *written]
    with torch.inference_mode():
        theirs = model(
            input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([begun])
        ).logits[0]
        rows = one_per_row([[to_source[i] for i in source]])
        mine = ours.network(rows, one_per_row([[BOS, *(to_ours[i] for i in written)]]))[0]
    never = (ids < 0) | (mine[0] < -1e29)
    if generation.renormalize_logits:
        theirs = theirs.clone()
        theirs[:, [word for [word] in generation.bad_words_ids]] = -torch.inf
    difference = (mine - theirs[:, ids.clamp(min=0)])[:, ~never].abs().max()
    assert difference < 1e-4
    # the softmax of both is over the same entries: none has lost its probability
    counted = theirs.logsumexp(-1)
    assert torch.allclose(mine[:, ~never].logsumexp(-1), counted, atol=1e-4)


def test_whole_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "certify", certify)
    write_marian(tmp_path / "theirs", bias=True, encoder_layers=2)
    model = imported(tmp_path)
    certificate = Certificate.read(tmp_path / "ours")
    assert certificate and not certificate.not_run
    assert certificate.difference < 1e-5 * certificate.range
    assert certificate.greedy == certificate.searched == 1
    assert certificate.encoded >= 0.95  # a typed </s> is text here, and the end of the source there
    assert certificate.files.keys() >= {"config.json", "model.safetensors", "vocab.json"}
    assert "certificate.json" in model.manifest["files"]
    assert model.manifest["imported"]["format"] == "hf"
    told = regard("info", tmp_path / "ours")
    assert "imported     from theirs (hf)" in told.stdout
    assert "100.0% by a beam of 4" in told.stdout
    whole = json.loads(regard("info", tmp_path / "ours", "--json").stdout)
    assert whole["certificate"] == certificate.model_dump()
    assert whole["recipe"]["model"]["positions"] == "halves"
    assert whole["parameters"] == model.network.parameter_count


def test_another_table_of_positions_is_kept_as_learned(tmp_path: Path) -> None:
    written = write_marian(tmp_path / "theirs", pickled=True, seed=3)
    state = dict(written.state_dict())
    table = torch.randn(64, 16)
    for side in ("encoder", "decoder"):
        state[f"model.{side}.embed_positions.weight"] = table
        getattr(written.model, side).embed_positions.weight.data = table
    torch.save(state, tmp_path / "theirs" / "pytorch_model.bin")
    ours = imported(tmp_path)
    assert ours.recipe.model.positions == "learned"
    assert torch.equal(ours.network.embedding.positions, table)
    generation = transformers.GenerationConfig.from_pretrained(tmp_path / "theirs")
    _compare_logits(ours, written, [5, 6, 7, 0], [8, 9, 10], generation)


def test_a_file_that_is_not_read_may_be_a_link(tmp_path: Path) -> None:
    write_marian(tmp_path / "theirs")
    (tmp_path / "theirs" / "target_vocab.json").symlink_to("vocab.json")  # for two vocabularies
    read = imported(tmp_path).manifest["imported"]["files"]
    assert {"vocab.json", "source.spm", "tokenizer_config.json"} <= read.keys()
    assert "target_vocab.json" not in read


def test_without_transformers_it_is_imported_and_says_that_nothing_was_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_marian(tmp_path / "theirs", bias=True)
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    done = regard("import", "hf", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert "proof        none: transformers is not installed" in done.stdout
    assert open_model(tmp_path / "ours").recipe.search.penalty == "length"


def test_a_model_that_would_compute_otherwise_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_marian(tmp_path / "theirs")
    from regard.exchange import from_hf

    monkeypatch.setattr(from_hf, "_NORM_EPSILON", 1e-2)
    done = regard("import", "hf", tmp_path / "theirs", "--out", tmp_path / "ours")
    assert done.status == 2
    assert "logits differ" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    again = regard("import", "hf", tmp_path / "theirs", "--out", tmp_path / "full")
    assert again.status == 2
    assert "exists already" in again.stderr
