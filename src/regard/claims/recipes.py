"""The recipes of the trainings: one model that is small and learns in a minute, and its variants.

Every variant is the recipe SMALLEST with a few fields changed, as in the paper's Table 3. Kinds of
attention scores are compared only with each other, in models of one head, on short sentences.
"""

from collections.abc import Mapping
from typing import Any

from regard.paper import parameters
from regard.recipe import ModelRecipe, Recipe

VOCABULARY = 1000
ROOM = 64
"""In SMALLEST, the length of a batch's rows, and the largest number of pieces (sub-words, </s>
included) that a sentence in training may have. 4 of the 20,000 pairs have a longer sentence, and
are dropped."""
SHORT_PIECES = 24
"""A short sentence has at most this many pieces, </s> included. In 58 % of the corpus's pairs, both
sentences are short."""

SMALLEST = Recipe().but(
    layers=2,
    d_model=64,
    d_ff=256,
    heads=4,
    dropout=0.0,  # the language is so regular that the model does not overfit
    vocabulary=VOCABULARY,
    max_length=ROOM,
    row_length=ROOM,
    source_tokens=1024,
    target_tokens=1024,
    warmup_steps=400,
    precision="fp32",
    log_every=20,
    validate_sentences=0,
    save_every=250,
    save_minutes=0.0,
    keep=1,
    average=1,
)
"""The recipe that the variants change. The model has 2 encoder layers and 2 decoder layers of width
64. Label smoothing, Adam, search and the formula of the learning rate are those of the paper; the
warm-up has 400 steps."""

WIDTHS = (16, 64, 256)
"""The values of d_k at which kinds of attention scores are compared."""
SCORES = ("scaled", "dot", "additive")
RATIOS = (1, 2, 8, 16)
"""The values of d_ff / d_model that are compared with the value 4 of the paper's base model. They
are approximate, because d_model must be a multiple of the number of heads."""


def of_ratio(ratio: int) -> dict[str, Any]:
    """The fields `d_model` and `d_ff` of a recipe, with d_ff / d_model near `ratio`.

    A model with these fields has about as many parameters as SMALLEST.
    """
    model = SMALLEST.model
    goal = parameters(model, VOCABULARY)

    def sized(d_model: int, d_ff: int) -> int:
        widths = {"d_model": d_model, "d_ff": d_ff, "heads": model.heads, "layers": model.layers}
        return parameters(ModelRecipe.model_validate(widths), VOCABULARY)

    widths = range(4 * model.heads, 4 * model.d_model, model.heads)
    d_model = min(widths, key=lambda width: abs(sized(width, ratio * width) - goal))
    d_ff = min(range(1, 32 * d_model), key=lambda inner: abs(sized(d_model, inner) - goal))
    return {"d_model": d_model, "d_ff": d_ff}


def _one_head(d_k: int, score: str) -> dict[str, Any]:
    """The fields of a recipe for models with one head of width d_k, and for short sentences.

    `score` is the kind of attention score, one of SCORES. Additive attention costs much time and
    memory with long sentences, so all kinds of scores are compared on short sentences.
    """
    text = {
        "max_length": SHORT_PIECES,
        "row_length": SHORT_PIECES,
        "source_tokens": 768,
        "target_tokens": 768,
    }
    return {"heads": 1, "d_k": d_k, "d_v": 64, "score": score, **text}


CHANGES: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "one-head": {"heads": 1},
    "many-heads": {"heads": 32},
    "no-residual": {"residual": False},
    "no-warm-up": {"warmup_steps": 1},
    "no-warm-up-low": {"warmup_steps": 1, "rate": SMALLEST.training.warmup_steps**-0.5},
    "no-mask": {"causal": False},
    "no-smoothing": {"label_smoothing": 0.0},
    "learned": {"positions": "learned", "max_positions": ROOM},
    "short": {"max_length": SHORT_PIECES},
    "short-learned": {
        "max_length": SHORT_PIECES,
        "positions": "learned",
        "max_positions": ROOM,
    },
    **{f"{score}-{d_k}": _one_head(d_k, score) for d_k in WIDTHS for score in SCORES},
    **{f"ratio-{ratio}": of_ratio(ratio) for ratio in RATIOS},
}
"""For each training, by its name: the fields of SMALLEST that change, and their new values. The
seed and the number of steps are arguments of `training_recipe`."""


def training_recipe(name: str, seed: int, steps: int) -> Recipe:
    """The recipe of the training with the name `name` in CHANGES, for a seed.

    The model is validated once, after the last step.
    """
    lengths = {"steps": steps, "validate_every": steps, "seed": seed}
    return SMALLEST.but(**{**lengths, **CHANGES[name]})
