"""Figure 1: it says of a model what the model is, and its numbers add up."""

import re
from copy import deepcopy
from functools import cache
from typing import NamedTuple
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.patches import PathPatch
from torch import nn

from regard.recipe import Recipe
from regard.transformer import Transformer
from regard.view.architecture import FIGURE_1, architecture, draw_architecture, sheet_size
from regard.view.drawing import FORMATS, Drawing, plotting, saved
from view.drawn import misplaced, written

PARAMETERS = re.compile(r"([\d,]+) parameters$")
MODELS = {
    "two layers of 64": ({"layers": 2, "d_model": 64, "d_ff": 200, "heads": 4}, 501),
    "unequal depth": ({"layers": 5, "decoder_layers": 1, "d_model": 32, "d_ff": 9, "heads": 1}, 70),
    "learned positions": ({"layers": 1, "positions": "learned", "max_positions": 300}, 3000),
    "unusual heads": ({"layers": 3, "d_model": 36, "heads": 5, "d_k": 7, "d_v": 11}, 90),
    "base": ({}, 37_000),
    "additive, nothing added": (
        {"layers": 2, "d_model": 64, "heads": 4, "score": "additive", "residual": False}, 90,
    ),
    "norms first": (
        {"layers": 3, "d_model": 64, "norm": "pre", "activation": "gelu", "embeddings": "apart",
         "positions": "halves", "output_bias": True}, 90,
    ),
    "norms first, nothing added": (
        {"layers": 1, "norm": "pre", "residual": False, "embeddings": "inputs",
         "embedding_scale": False}, 90,
    ),
    "like an OPUS model": (
        {"activation": "swish", "positions": "halves", "output_bias": True, "decoder_heads": 4,
         "decoder_d_ff": 1024, "embeddings": "target"}, 58_101,
    ),
    "positions of words": (
        {"layers": 2, "d_model": 128, "heads": 4, "output": "trees", "positions": "words"}, 2000,
    ),
    "no mask, no scale": ({"layers": 1, "causal": False, "score": "dot"}, 90),
    "large": (
        {"layers": 12, "decoder_layers": 10, "d_model": 4096, "d_ff": 16_384, "heads": 16,
         "positions": "learned", "max_positions": 4096, "dropout": 0.3, "attention_dropout": 0.15},
        250_000,
    ),
}  # fmt: skip


@cache
def a_model(name: str) -> Transformer:
    """A model that has shapes and no numbers, made once for all tests."""
    fields, vocabulary = MODELS[name]
    with torch.device("meta"):
        return Transformer(Recipe().but(**fields).model, vocabulary)


class Drawn(NamedTuple):
    """Figure 1 for a model: its texts, those at a wrong place, and the number of its lines."""

    texts: list[str]
    misplaced: list[str]
    strokes: int


@cache
def drawn(name: str) -> Drawn:
    """Figure 1 for a model, drawn once for all tests."""
    with plotting() as sheet:
        model = a_model(name)
        drawing = Drawing(sheet, *sheet_size(model))
        draw_architecture(drawing, model)
        strokes = sum(isinstance(patch, PathPatch) for patch in drawing.axes.patches)
        wrong = misplaced(drawing)  # before it is saved, which sets another resolution
        return Drawn(written(saved(drawing.figure, "svg")), wrong, strokes)


def said(name: str) -> list[str]:
    return drawn(name).texts


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_of_the_boxes_add_up_to_the_model(name: str) -> None:
    model, texts = a_model(name), said(name)
    layers = {"encoder": len(model.encoder), "decoder": len(model.decoder)}
    total, times = 0, 1
    for text in texts:
        if found := re.match(r"([a-z_]+)[.:]", text):
            times = layers.get(found[1], 1)
        if found := PARAMETERS.search(text):
            total += times * number(found[1])
    assert total == model.parameter_count == sum(p.numel() for p in model.parameters())
    assert f"{total:,}" in texts


@pytest.mark.parametrize("name", MODELS)
def test_every_module_with_parameters_is_named_with_its_number(name: str) -> None:
    model, texts = a_model(name), said(name)
    places = [f"{stack}.0" for stack in ("encoder", "decoder")]
    for place in places:
        layer = model.get_submodule(place)
        last = len(model.get_submodule(place.split(".")[0])) - 1
        shown = place if last == 0 else f"{place}…{last}"
        for child, module in layer.named_children():
            norm = getattr(module, "norm", None)
            named = {f"{child}.norm": norm} if norm else {}
            if list(module.children()) != [norm]:
                named[child] = module
            for name_, one in named.items() if list(module.parameters()) else ():
                at = texts.index(f"{shown}.{name_}: {type(one).__name__}")
                counts = [t for t in texts[at : at + 3] if PARAMETERS.search(t)]
                weights = sum(p.numel() for p in one.parameters())
                if one is module and norm:
                    weights -= sum(p.numel() for p in norm.parameters())
                assert number(PARAMETERS.search(counts[0])[1]) == weights


def test_a_small_model_draws_itself() -> None:
    texts = said("two layers of 64")
    assert texts.count("2 ×") == 2
    assert texts.count("4 heads, d_k = 16, d_v = 16, d_model = 64") == 3
    assert texts.count("64 → d_ff = 200 → 64, ReLU") == 2
    assert "501 × 64: 32,064 parameters" in texts
    assert texts.count("shared, counted at Input Embedding") == 2
    assert texts.count("sines and cosines of width 64") == 2
    assert [t for t in texts if "Multi-Head" in t] == [
        "Multi-Head Attention", "Masked Multi-Head Attention", "Multi-Head Attention",
    ]  # fmt: skip
    assert texts.count("Add & Norm") == 5


def test_unequal_depth_and_learned_positions() -> None:
    texts = said("unequal depth")
    assert "5 ×" in texts and "1 ×" in texts
    assert "encoder.0…4.self_attention: MultiHeadAttention" in texts
    assert "decoder.0.self_attention: MultiHeadAttention" in texts
    texts = said("learned positions")
    assert "300 × 512: 153,600 parameters" in texts
    assert "the same table as left" in texts
    assert not any("sines" in text for text in texts)
    assert "positions of words; no parameters" in said("positions of words")


def strokes(name: str) -> int:
    return drawn(name).strokes


def test_a_changed_model_is_not_drawn_as_the_paper_has_it() -> None:
    texts = said("additive, nothing added")
    assert texts.count("Norm") == 5 and "Add & Norm" not in texts
    assert "encoder.0…1.self_attention: AdditiveAttention" in texts
    assert strokes("additive, nothing added") == strokes("two layers of 64") - 5
    assert not any("Masked" in text for text in said("no mask, no scale"))


def test_norms_that_come_first_have_boxes_of_their_own() -> None:
    texts = said("norms first")
    assert texts.count("Norm") == 5 + 2 and "Add & Norm" not in texts
    assert "decoder.0…2.cross_attention: PreNormAttention" in texts
    assert "encoder_norm: LayerNorm" in texts and "decoder_norm: LayerNorm" in texts
    assert strokes("norms first, nothing added") == strokes("norms first") - 5 + 5
    model = a_model("norms first")
    assert sheet_size(model)[1] > FIGURE_1[1] == sheet_size(a_model("base"))[1]


def test_matrices_of_their_own_are_counted_where_they_are() -> None:
    texts = said("norms first")
    assert "target_embedding.tokens, times √64" in texts
    assert "output.tokens, transposed: 64 → 90" in texts
    assert "output_bias: 90 parameters" in texts
    assert not any("shared" in text for text in texts)
    assert texts.count("64 → d_ff = 2,048 → 64, GELU") == 2
    assert texts.count("sines, then cosines, of width 64") == 2
    texts = said("norms first, nothing added")
    assert "embedding.tokens" in texts  # without a scale
    assert "shared, counted at Input Embedding" in texts
    texts = said("like an OPUS model")
    assert "target_embedding.tokens, transposed: 512 → 58,101" in texts
    assert "shared, counted at Output Embedding" in texts
    assert "512 → d_ff = 1,024 → 512, swish" in texts
    assert "4 heads, d_k = 128, d_v = 128, d_model = 512" in texts


@pytest.mark.parametrize("name", MODELS)
def test_texts_stay_apart_in_their_boxes_and_on_the_sheet(name: str) -> None:
    assert drawn(name).misplaced == []


@pytest.mark.parametrize("form", FORMATS)
def test_formats(form: str) -> None:
    figure = architecture(a_model("two layers of 64"), form)
    assert figure.startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form])


def test_a_layer_with_an_unknown_module_is_not_drawn_wrongly() -> None:
    model = deepcopy(a_model("two layers of 64"))
    model.encoder[0].add_module("gate", nn.Linear(2, 2))
    with pytest.raises(TypeError, match="Figure 1 has no Linear"):
        architecture(model, "svg")


def test_the_same_bytes_again_and_the_size_of_the_sheet() -> None:
    figure = architecture(a_model("base"), "svg")
    assert figure == architecture(a_model("base"), "svg")
    assert ElementTree.fromstring(figure).get("viewBox") == "0 0 {:.0f} {:.0f}".format(*FIGURE_1)
