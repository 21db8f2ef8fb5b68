"""An untrained model whose heads differ, and looks made without a model."""

import numpy as np
import pytest
import torch
from torch import nn

from regard.corpus import example
from regard.recipe import Recipe
from regard.run.model_directory import Model
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from regard.view.look import Look
from regard.view.recording import KINDS, AttentionKind

SENTENCE = example(2, 11).source
TARGET = example(2, 11).target


@pytest.fixture(scope="session")
def model() -> Model:
    lines = [line for i in range(200) for line in (example(1, i).source, example(1, i).target)]
    tokenizer = Tokenizer.learn(lines, "bpe", 350)
    recipe = Recipe().but(
        layers=2, d_model=24, d_ff=29, heads=3, d_k=5, d_v=7, max_extra=5, beam=3, max_length=97
    )
    torch.manual_seed(5)
    transformer = Transformer(recipe.model, tokenizer.size)
    for parameter in transformer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return Model(recipe, tokenizer, transformer.eval(), {})


def a_look(
    words: int, layers: int, heads: int, sharpness: float = 3.0, decoder_heads: int | None = None
) -> Look:
    """A look with `words` words on either side and random weights."""
    draw = np.random.default_rng(7)
    source = (*(f"word{i}" for i in range(words)), "</s>")
    written = (*(f"Wort{i}" for i in range(words)), "</s>")

    def weights(kind: AttentionKind) -> np.ndarray:
        many = heads if kind == "encoder" else decoder_heads or heads
        scores = sharpness * draw.standard_normal((layers, many, words + 1, words + 1))
        if kind == "decoder":
            scores += np.triu(np.full((words + 1, words + 1), -np.inf), 1)
        exponentials = np.exp(scores)
        return (exponentials / exponentials.sum(-1, keepdims=True)).astype(np.float32)

    return Look(
        " ".join(source[:-1]),
        " ".join(written[:-1]),
        source,
        ("<s>", *written[:-1]),
        written,
        (-0.5,) * len(written),
        {kind: weights(kind) for kind in KINDS},
        None,
    )
