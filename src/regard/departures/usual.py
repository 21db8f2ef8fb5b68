"""The usual settings of other code bases, and how a recipe differs from them.

The values were taken from public files, which each setting names; the files may have changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from regard.departures.case import value
from regard.errors import unknown
from regard.recipe import Recipe
from regard.schedule import learning_rate

_BASE_RATE, _BIG_RATE = (learning_rate(4000, d_model, 4000) for d_model in (512, 1024))
_BASE_SHAPE: Mapping[str, Any] = {
    "task.output": "text",
    "model.layers": 6,
    "model.decoder_layers": 6,
    "model.d_model": 512,
    "model.d_ff": 2048,
    "model.heads": 8,
    "model.d_k": 64,
    "model.d_v": 64,
    "model.dropout": 0.1,
    "model.activation": "relu",
    "model.norm": "post",
    "model.norm_epsilon": 1e-6,
    "model.embedding_scale": True,
    "model.output_bias": False,
    "model.positions": "sinusoidal",
    "data.layout": "grouped",
    "data.share": 1.0,
    "data.subword_dropout": 0.0,
    "training.beta1": 0.9,
    "training.label_smoothing": 0.1,
}
_BIG_SHAPE = {"model.d_model": 1024, "model.d_ff": 4096, "model.heads": 16, "model.dropout": 0.3}


class Beyond(NamedTuple):
    """A difference that no field of a recipe expresses."""

    subject: str
    theirs: str
    ours: str


@dataclass(frozen=True, slots=True)
class Usual:
    """A named configuration that a code base offers for WMT translation."""

    name: str
    source: str
    """The public repository, and the file in it that has the configuration."""
    fields: Mapping[str, Any]
    """The values of the configuration, for those fields of a recipe that the configuration sets."""
    beyond: tuple[Beyond, ...]


_SINUSOIDS = Beyond(
    "sinusoids",
    "all sines, then all cosines; exponent i/(d_model/2 − 1)",
    "interleaved; exponent 2i/d_model",
)
_EVERY = "epsilon/V on every entry, including the right one"

_T2T_BEYOND = (
    _SINUSOIDS,
    Beyond("label smoothing", "epsilon/(V − 1) on each wrong entry", _EVERY),
    Beyond("language", "a learned vector for the target language in the encoder", "none"),
    Beyond("first target symbol", "a zero vector", "`<s>`"),
    Beyond(
        "batch",
        "4,096 (base) or 2,048 (big) padded tokens of the longer side on each GPU",
        "source_tokens and target_tokens, whatever the number of processes",
    ),
    Beyond("averaging", "a separate tool", "at the end of training"),
)
_T2T: Mapping[str, Any] = {
    **_BASE_SHAPE,
    "model.norm": "pre",
    "model.attention_dropout": 0.1,
    "model.relu_dropout": 0.1,
    "data.max_length": 256,
    "training.steps": 250_000,
    "training.rate": 2.0,
    "training.warmup_steps": 8000,
    "training.beta2": 0.997,
    "training.epsilon": 1e-9,
    "training.precision": "fp32",
    "search.beam": 4,
    "search.alpha": 0.6,
    "search.max_extra": 100,
}
_FAIRSEQ_BEYOND = (
    _SINUSOIDS,
    Beyond("label smoothing", "epsilon/(V − 1) on each wrong entry", _EVERY),
    Beyond(
        "initial values",
        "queries, keys and values with Glorot limits divided by the square root of 2",
        "Glorot limits of each matrix",
    ),
    Beyond("first target symbol", "`</s>`", "`<s>`"),
    Beyond("precision", "fp16 with a scaled loss", "training.precision"),
    Beyond("longest output", "200 pieces, whatever the source", "source + max_extra"),
    Beyond(
        "batch",
        "3,584 tokens of the longer side on each of 8 GPUs",
        "source_tokens and target_tokens, whatever the number of processes",
    ),
    Beyond("averaging", "a separate script", "at the end of training"),
)
_FAIRSEQ: Mapping[str, Any] = {
    **_BASE_SHAPE,
    "model.norm_epsilon": 1e-5,
    "model.attention_dropout": 0.0,
    "model.relu_dropout": 0.0,
    "tokenizer.kind": "bpe",
    "tokenizer.vocabulary": 32_768,
    "training.rate": round(0.0005 / _BASE_RATE, 3),
    "training.warmup_steps": 4000,
    "training.beta2": 0.98,
    "training.epsilon": 1e-8,
    "search.beam": 4,
    "search.alpha": 0.6,
    "search.penalty": "length",
}
_JOEYNMT_BEYOND = (
    Beyond(
        "learning rate",
        "0.0002, times 0.7 after 8 validations without a better perplexity",
        "warm-up, then the inverse square root of the step",
    ),
    Beyond("label smoothing", "epsilon/(V − 2) on each wrong entry", _EVERY),
    Beyond("initial values of embeddings", "Glorot", "normal, standard deviation d_model^-0.5"),
    Beyond("dropout on embedding + position", "none", "model.dropout"),
    Beyond("longest output", "100 pieces, whatever the source", "source + max_extra"),
    Beyond("duration", "100 epochs, or until the rate is 1e-8", "training.steps"),
    Beyond("final model", "the checkpoint of the best perplexity", "an average"),
    Beyond("longest sentences", "100 pieces without `</s>`", "data.max_length, `</s>` included"),
)
_JOEYNMT: Mapping[str, Any] = {
    **_BASE_SHAPE,
    "model.norm": "pre",
    "model.attention_dropout": 0.1,
    "model.relu_dropout": 0.1,
    "tokenizer.kind": "bpe",
    "data.source_tokens": 4096,
    "data.target_tokens": 4096,
    "training.accumulate": 1,
    "training.beta2": 0.999,
    "training.epsilon": 1e-8,
    "training.average": 1,
    "training.precision": "fp32",
    "search.beam": 5,
    "search.alpha": 1.0,
}


def _settings(
    source: str, beyond: tuple[Beyond, ...], fields: Mapping[str, Mapping[str, Any]]
) -> tuple[Usual, ...]:
    """The settings of a code base; `fields` maps the name of each setting to its values."""
    return tuple(Usual(name, source, its, beyond) for name, its in fields.items())


USUAL: Mapping[str, tuple[Usual, ...]] = {
    "t2t": _settings(
        "tensorflow/tensor2tensor: tensor2tensor/models/transformer.py",
        _T2T_BEYOND,
        {
            "tensor2tensor, transformer_base": _T2T,
            "tensor2tensor, transformer_big": {**_T2T, **_BIG_SHAPE},
        },
    ),
    "fairseq": _settings(
        "facebookresearch/fairseq: examples/scaling_nmt/README.md",
        _FAIRSEQ_BEYOND,
        {
            "fairseq, transformer_wmt_en_de": _FAIRSEQ,
            "fairseq, transformer_vaswani_wmt_en_de_big": {
                **_FAIRSEQ,
                **_BIG_SHAPE,
                "training.rate": round(0.0005 / _BIG_RATE, 3),
            },
        },
    ),
    "joeynmt": _settings(
        "joeynmt/joeynmt: configs/transformer_wmt17_ende.yaml",
        _JOEYNMT_BEYOND,
        {"JoeyNMT, transformer_wmt17_ende": _JOEYNMT},
    ),
}
"""The usual settings of each code base."""


class FieldDifference(NamedTuple):
    """A field in which a recipe differs from a usual setting."""

    field: str
    """The name of the field, as `section.key`."""
    theirs: Any
    ours: Any


def against(recipe: Recipe, code_base: str) -> tuple[Usual, list[FieldDifference]]:
    """The setting of a code base that is nearest to a recipe, and the fields that differ.

    The nearest setting differs in the fewest fields. Raises RecipeError for a code base that is not
    in `USUAL`.
    """
    if code_base not in USUAL:
        raise unknown("code base", code_base, ["paper", *USUAL])
    found = [(usual, _differing(recipe, usual)) for usual in USUAL[code_base]]
    return min(found, key=lambda one: len(one[1]))


def _differing(recipe: Recipe, usual: Usual) -> list[FieldDifference]:
    here = ((field, theirs, value(recipe, field)) for field, theirs in usual.fields.items())
    return [FieldDifference(*one) for one in here if one[1] != one[2]]
