"""Figure 2: the sizes of one head and of all, and parameters that add up."""

from functools import cache

import pytest
import torch

from regard.attention import MultiHeadAttention
from regard.recipe import Recipe
from regard.transformer import Transformer
from regard.view.drawing import Drawing, plotting, saved
from regard.view.multihead import FIGURE_2, draw_multihead, multihead
from view.drawn import misplaced, written
from view.test_architecture import MODELS, PARAMETERS, a_model, number

NAMES = [name for name in MODELS if "positions" not in name]
"""Models that differ in their attention, not only in what Figure 2 leaves out."""


@cache
def drawn(name: str) -> tuple[list[str], list[str]]:
    """The texts of Figure 2 for a model, and those at a wrong place; drawn once for all tests."""
    with plotting() as sheet:
        drawing = Drawing(sheet, *FIGURE_2)
        draw_multihead(drawing, a_model(name))
        wrong = misplaced(drawing)  # before it is saved, which sets another resolution
        return written(saved(drawing.figure, "svg")), wrong


def said(name: str) -> list[str]:
    return drawn(name)[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_of_the_boxes_add_up_to_the_attention(name: str) -> None:
    model, texts = a_model(name), said(name)
    *boxes, whole = [number(found[1]) for t in texts if (found := PARAMETERS.search(t))]
    attention = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    assert len(boxes) == 4 + name.startswith("additive")
    counts = [
        sum(p.numel() for n, p in m.named_parameters() if not n.startswith("norm."))
        for m in attention
    ]
    assert (sum(boxes), whole) == (counts[0], sum(counts))
    assert f"together {len(attention)} × {sum(boxes):,} = {whole:,} parameters" in texts


def test_a_decoder_of_other_heads_is_counted_as_it_is() -> None:
    with torch.device("meta"):
        fields = {"layers": 2, "d_model": 68, "heads": 4, "decoder_heads": 8}
        model = Transformer(Recipe().but(**fields).model, 90)
    one, other = (m[0].self_attention for m in (model.encoder, model.decoder))
    each = [sum(p.numel() for p in its.parameters()) for its in (one, other)]
    assert each[0] != each[1]
    texts = written(multihead(model, "svg"))
    assert f"6, together {2 * each[0] + 4 * each[1]:,} parameters" in texts


def test_unusual_heads() -> None:
    texts = said("unusual heads")
    assert {"W_q: 36 → 5 × 7", "W_k: 36 → 5 × 7", "W_v: 36 → 5 × 11", "W_o: 55 → 36"} <= {*texts}
    assert {"h = 5", "1 / √7 = 0.378", "weights V: queries × 11", "keys × 11"} <= {*texts}


def test_dropout_on_the_weights_is_told_where_it_is() -> None:
    assert "over the keys, dropout 0.15" in said("large")
    assert "over the keys" in said("base")


def test_other_scores_are_drawn_as_they_are() -> None:
    texts = said("no mask, no scale")
    assert "Scale" not in texts and texts.count("Dot-Product Attention") == 2
    texts = said("additive, nothing added")
    assert {"Add", "Tanh", "w: 4 × 16, 64 parameters"} <= {*texts} and "Scale" not in texts
    assert texts.count("Additive Attention") == 2


@pytest.mark.parametrize("name", NAMES)
def test_texts_stay_apart_in_their_boxes_and_on_the_sheet(name: str) -> None:
    assert drawn(name)[1] == []


def test_the_same_bytes_again_and_a_pdf() -> None:
    model = a_model("two layers of 64")
    figure = multihead(model, "svg")
    assert written(figure) == said("two layers of 64")
    assert figure == multihead(model, "svg")
    assert multihead(model, "pdf").startswith(b"%PDF")
