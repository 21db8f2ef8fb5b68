"""Tiny models of odd shapes, exported."""

from pathlib import Path
from typing import Any

import torch

from regard.recipe import Recipe
from regard.run.model_directory import write_model
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from run.copying import RECIPE, strings

TOKENIZER = Tokenizer.learn(strings(97, seed=1), "bpe", 300)
SHAPES = {
    "paper": RECIPE,
    "wide heads": RECIPE.but(layers=2, decoder_layers=1, d_k=24, d_v=24),
    "unscaled": RECIPE.but(score="dot", heads=1, d_k=16, d_v=16),
    "learned positions": RECIPE.but(
        positions="learned", max_positions=300, embeddings="inputs", activation="gelu"
    ),
    "marian": RECIPE.but(
        positions="halves",
        activation="swish",
        output_bias=True,
        norm_epsilon=1e-5,
        decoder_heads=4,
        decoder_d_ff=11,
        decoder_layers=2,
        embedding_scale=False,
    ),
    "pre-norm": RECIPE.but(norm="pre", layers=2, embeddings="apart", output_bias=True),
    "sources without </s>": RECIPE.but(norm="pre", source_end=False),
}
"""Recipes that every engine can compute."""


def untrained(
    folder: Path,
    recipe: Recipe = RECIPE,
    seed: int = 7,
    *,
    never: float = -8.0,
    end: float = 0.0,
    tokenizer: AnyTokenizer = TOKENIZER,
) -> Path:
    """A model directory of random weights, also where training begins with zeros.

    `never` lowers or raises the probability of <pad> and <s>, which in a trained model is none, and
    `end` that of </s>.
    """
    torch.manual_seed(seed)
    model = Transformer(recipe.model, tokenizer.size)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
            if name.endswith("tokens.weight"):
                parameter *= 2  # outputs that differ, and end
        _set_logits(model, never, end)
    write_model(folder, recipe, tokenizer, dict(model.named_parameters()), {"step": 1})
    return folder


def _set_logits(model: Transformer, never: float, end: float) -> None:
    """Add three times these to the logits of <pad> and <s>, and of </s>: one dimension is 3."""
    last = model.decoder_norm if hasattr(model.decoder_norm, "weight") else None
    norm: Any = last or model.decoder[-1].add_norm_3.norm
    norm.weight[0], norm.bias[0] = 0.0, 3.0
    model.output_matrix.weight[:2, 0] = never
    if end:
        model.output_matrix.weight[2, 0] = end
