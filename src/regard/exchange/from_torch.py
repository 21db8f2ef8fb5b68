"""`regard import torch`: read an nn.Transformer, and the embeddings and output layer around it.

The file is a state dict, which holds only weights. So the user has to tell the rest, such as the
number of heads and whether embeddings are scaled.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError, RecipeError
from regard.exchange.foreign import LONGEST_SOURCE, Foreign, foreign_recipe, not_run
from regard.exchange.matrices import ForeignMatrices
from regard.exchange.positions import learned_positions
from regard.exchange.reading import read_pickled, read_safetensors, tensors_of
from regard.exchange.texts import SpecialNames, Texts, tokenizer_of
from regard.exchange.weights import ForeignWeights, layers
from regard.layers import sinusoids
from regard.recipe import Recipe
from regard.text.foreign.base import ForeignTokenizer
from regard.variants import sinusoids_in_halves

COMPUTED = ("sinusoidal", "halves")
"""Values of `model.positions` for a program that computes its positional encodings."""
_NORM_EPSILON = 1e-5
SOURCE = "src", "source", "enc"
TARGET = "tgt", "trg", "target", "dec"
OUTPUT = "generator", "output", "fc_out", "linear", "proj", "lm_head", "head", "out"
_EMBEDDING = "emb"
"""A matrix whose name contains this text, such as "output_embedding", is an embedding."""
_HOLDERS = "state_dict", "model_state_dict", "model"
_PARTS = {
    "self.q": "self_attn.q",
    "self.k": "self_attn.k",
    "self.v": "self_attn.v",
    "self.o": "self_attn.out_proj",
    "cross.q": "multihead_attn.q",
    "cross.k": "multihead_attn.k",
    "cross.v": "multihead_attn.v",
    "cross.o": "multihead_attn.out_proj",
    "ff.1": "linear1",
    "ff.2": "linear2",
}
_NORMS = {
    "encoder": {"self": "norm1", "ff": "norm2"},
    "decoder": {"self": "norm1", "cross": "norm2", "ff": "norm3"},
}


@dataclass(frozen=True)
class Program:
    """Facts about the program around nn.Transformer; the state dict lacks them."""

    heads: int
    activation: str = "relu"
    norm_first: bool = False
    scale: bool = True
    """Whether the program multiplies embeddings by sqrt(d_model)."""
    norm_epsilon: float = _NORM_EPSILON
    source_embedding: str = ""
    """The name of the source's embedding matrix in the state dict, such as "src.weight" or "src";
    if "", regard looks for the matrix. `target_embedding` is the name of the target's matrix."""
    target_embedding: str = ""
    generator: str = ""
    """The name of the layer before the softmax, or of the embedding whose matrix this layer uses;
    if "", regard looks for the layer."""
    positions: str = ""
    """The name of the table of positional encodings; if "", regard looks for the table. If the
    program computes its positional encodings and has no table, this is a value of `COMPUTED`."""
    pad: str = "<pad>"
    begin: str = "<s>"
    end: str = "</s>"
    """The name of </s> in the vocabulary; `pad` and `begin` are the names of <pad> and <s>."""


def read_torch(path: Path, program: Program, texts: Texts) -> Foreign:
    """Read a file with a state dict, and convert the model.

    `program` has the facts that the state dict lacks, and `texts` names the vocabularies. Raises
    ModelError for a bad file, or a model that cannot be converted exactly; RecipeError if `program`
    or `texts` is incomplete, invalid or unsuitable; MissingExtra if a package is not installed.
    """
    tensors = _tensors(path)
    prefix = _prefix(tensors, path)
    renamed = _split(tensors, path)
    weights = ForeignWeights(renamed, path, biases=False)
    found = _find(weights, prefix, program, path)
    sizes = weights.shape(found.source)[0], weights.shape(found.target)[0]
    names = SpecialNames(program.pad, program.begin, program.end)
    tokenizer = tokenizer_of(texts, sizes, names, shared=found.source == found.target)
    recipe = _recipe(weights, prefix, program, sizes[1], path)
    begin = names.start(tokenizer.order)
    if begin < 0:
        raise RecipeError(
            f"{path}: its vocabulary has no {program.begin}, with which targets begin: give --begin"
        )
    converted, fields = _converted(weights, prefix, found, recipe, tokenizer, begin)
    if not found.positions:
        fields["positions"] = _computed(program, path)
    files, side = texts.checksums(path), not_run("a state dict has no program that could be run")
    return Foreign("torch", path, recipe.but(**fields), converted, tokenizer, files, side)


def _computed(program: Program, path: Path) -> str:
    """`program.positions`, if it is a value of `COMPUTED`; raises RecipeError for other values."""
    if program.positions not in COMPUTED:
        raise RecipeError(
            f"{path}: has no table of positions: give --positions sinusoidal if the program "
            "computes those of §3.5, where sines and cosines alternate, or halves if all sines "
            "come first"
        )
    return program.positions


def _tensors(path: Path) -> dict[str, Tensor]:
    """The state dict in a file, stored alone or under a key such as "state_dict" (`_HOLDERS`)."""
    if path.suffix == ".safetensors":
        return read_safetensors(path)
    content = read_pickled(path)
    if isinstance(content, dict):
        for key in _HOLDERS:
            if isinstance(content.get(key), dict):
                return tensors_of(content[key], path)
    return tensors_of(content, path)


def _prefix(tensors: dict[str, Tensor], path: Path) -> str:
    """The prefix of nn.Transformer's names in the state dict: "", or for example "transformer."."""
    end = "decoder.layers.0.multihead_attn.in_proj_weight"
    found = [name.removesuffix(end) for name in tensors if name.endswith(end)]
    if len(found) != 1:
        raise ModelError(f"{path}: has {len(found)} nn.Transformer (…{end}): it must have one")
    return found[0]


def _split(tensors: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Split each joined projection of queries, keys and values into three; keep other tensors."""
    found = {}
    for name, tensor in tensors.items():
        if name.endswith(("in_proj_weight", "in_proj_bias")):
            if tensor.ndim < 1 or len(tensor) % 3:
                raise ModelError(f"{path}: {name} is {list(tensor.shape)}: not three projections")
            stem, kind = name[: name.rindex("in_proj_")], name.rpartition("_")[2]
            for one, part in zip("qkv", tensor.chunk(3), strict=True):
                found[f"{stem}{one}.{kind}"] = part
        else:
            found[name] = tensor
    return found


@dataclass(frozen=True)
class _Names:
    source: str
    target: str
    output: str
    """The name of the output layer, or of the embedding whose matrix it uses, without .weight."""
    positions: str


def _find(weights: ForeignWeights, prefix: str, program: Program, path: Path) -> _Names:
    """The names of the embeddings, the output layer and the table of positions.

    Names that `program` gives are used. Any other matrix is found by a word in its name, for
    example "generator" for the output layer. If there is only one embedding, source and target
    share it. The matrix of the output layer counts as an embedding, too, if its name contains "emb"
    or has no word of `OUTPUT`. `_only_positions` finds the table of positions; without a table, the
    name is "". Raises RecipeError if no matrix or more than one fits a role, if a tensor that
    `program` names is missing, or if a named table of positions has another shape.
    """
    inside = f"{prefix}encoder.", f"{prefix}decoder."
    outside = [name for name in weights.names() if not name.startswith(inside)]
    width = weights.shape(f"{prefix}encoder.layers.0.linear1.weight")[1]
    tables = _matrices(weights, outside, width)
    output = _named(weights, program.generator, "--generator", path)
    output = output or _one(tables, OUTPUT, "--generator", path, without=_EMBEDDING)
    output = output.removesuffix(".weight")
    tied = not _contains(output, OUTPUT, _EMBEDDING)
    embeddings = [name for name in tables if tied or name != f"{output}.weight"]
    source = _named(weights, program.source_embedding, "--source-embedding", path)
    target = _named(weights, program.target_embedding, "--target-embedding", path)
    source = source or _embedding(embeddings, SOURCE, "--source-embedding", path)
    target = target or _embedding(embeddings, TARGET, "--target-embedding", path)
    others = set(outside) - {source, target, f"{output}.weight", f"{output}.bias"}
    asked = {program.positions}.difference(COMPUTED) if program.positions else others
    if not asked <= others:
        raise RecipeError(
            f"{path}: has no other tensor {program.positions}: give --positions the name of a "
            "table in the file, sinusoidal or halves"
        )
    return _Names(source, target, output, _only_positions(weights, asked, width, program, path))


def _matrices(weights: ForeignWeights, names: list[str], width: int) -> list[str]:
    """Return the `names` that belong to weight matrices with `width` columns."""
    return [
        name for name in names if name.endswith("weight") and weights.axes(name)[1:] == (width,)
    ]


def _named(weights: ForeignWeights, name: str, option: str, path: Path) -> str:
    """The full name of the matrix `name`, which may lack .weight; "" if `name` is ""."""
    found = [one for one in (name, f"{name}.weight") if one in weights]
    if name and not found:
        raise RecipeError(f"{path}: {option} {name}: has no such matrix")
    return found[0] if found else ""


def _embedding(embeddings: list[str], parts: tuple[str, ...], option: str, path: Path) -> str:
    """The only name in `embeddings` or, among several, the only name with one of `parts` in it."""
    if len(embeddings) == 1:
        return embeddings[0]
    return _one(embeddings, parts, option, path)


def _only_positions(
    weights: ForeignWeights, names: set[str], width: int, program: Program, path: Path
) -> str:
    """The only name in `names` that belongs to a tensor of the shape [positions, d_model].

    There are at least two positions; further axes have length 1. `width` is d_model. Returns "" if
    no tensor or several fit. Raises RecipeError if `program` names a tensor that does not fit.
    """
    found = [
        name
        for name in names
        if (axes := weights.axes(name))[-1:] == (width,) and sum(n > 1 for n in axes[:-1]) == 1
    ]
    if program.positions in names and not found:
        raise RecipeError(
            f"{path}: {program.positions} is {list(weights.axes(program.positions))}, and a table "
            f"of positions is [positions, {width}], of two positions or more: give --positions the "
            "name of another tensor"
        )
    return found[0] if len(found) == 1 else ""


def _contains(name: str, parts: tuple[str, ...], without: str = "") -> bool:
    """Whether a name contains one of `parts` but not `without`; a `without` of "" is ignored."""
    found = any(part in name.lower() for part in parts)
    return found and not (without and without in name.lower())


def _one(
    names: list[str], parts: tuple[str, ...], option: str, path: Path, *, without: str = ""
) -> str:
    """The only name that has one of `parts` and lacks `without`; RecipeError for none or more."""
    found = [name for name in names if _contains(name, parts, without)]
    if len(found) != 1:
        shown = ", ".join(names[:8]) or "none"
        raise RecipeError(f"{path}: which matrix is it? Give {option} NAME; there are: {shown}")
    return found[0]


def _depth(weights: ForeignWeights, stem: str) -> int:
    """The number of layers whose weights have names with the prefix `stem` ("encoder.layers.")."""
    names = (name for name in weights.names() if name.startswith(stem))
    return len({name[len(stem) :].partition(".")[0] for name in names})


def _recipe(
    weights: ForeignWeights, prefix: str, program: Program, targets: int, path: Path
) -> Recipe:
    ff, width = weights.shape(f"{prefix}encoder.layers.0.linear1.weight")
    final = f"{prefix}encoder.norm.weight" in weights
    if program.norm_first and not final:
        raise ModelError(f"{path}: normalises first, but has no LayerNorm after the last layer")
    norm = "pre" if program.norm_first else "last" if final else "post"
    return foreign_recipe(
        path,
        targets,
        LONGEST_SOURCE,
        layers=_depth(weights, f"{prefix}encoder.layers."),
        decoder_layers=_depth(weights, f"{prefix}decoder.layers."),
        d_model=width,
        d_ff=ff,
        decoder_d_ff=weights.shape(f"{prefix}decoder.layers.0.linear1.weight")[0],
        heads=program.heads,
        activation=program.activation,
        norm=norm,
        norm_epsilon=program.norm_epsilon,
        embedding_scale=program.scale,
    )


def _converted(
    weights: ForeignWeights,
    prefix: str,
    names: _Names,
    recipe: Recipe,
    tokenizer: ForeignTokenizer[Any],
    begin: int,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights under regard's names, and the recipe fields that the weights determine.

    `begin` is the foreign id of the target entry with which the decoder begins.
    """
    model, width = recipe.model, recipe.model.d_model
    sizes = tokenizer.order_of("source").size, tokenizer.order.size
    source = weights.take(names.source, sizes[0], width)
    target = source if names.target == names.source else weights.take(names.target, sizes[1], width)
    if f"{names.output}.weight" == names.target:
        output, bias = target, weights.bias(names.output, sizes[1])
    else:
        output, bias = weights.linear(names.output, sizes[1], width)
    matrices = ForeignMatrices(
        tokenizer, source=source, target=target, output=output, bias=bias, start=target[begin]
    )
    positions, fields = _positions(weights, names.positions, recipe)

    def part(stack: str, i: int, part: str) -> str:
        kind, _, what = part.partition(".")
        own = _NORMS[stack][kind] if what == "norm" else _PARTS[part]
        return f"{prefix}{stack}.layers.{i}.{own}"

    found = layers(weights, model, part, lambda stack: f"{prefix}{stack}.norm")
    found |= matrices.weights(positions)
    weights.finish()
    return found, fields | matrices.fields


def _positions(
    weights: ForeignWeights, name: str, recipe: Recipe
) -> tuple[Tensor | None, dict[str, Any]]:
    """The stored table of positions `name`, and the recipe fields that describe the positions.

    The table is [positions, d_model]. Returns None in place of the table if `name` is "", which
    means that `_find` chose no table. Also returns None if the stored table holds the sinusoids of
    §3.5, alternating or with all sines first, because regard computes such sinusoids itself.
    """
    width = recipe.model.d_model
    if not name:
        return None, {}
    table = weights.take_any(name).reshape(-1, width)
    for kind, sines in (("sinusoidal", sinusoids), ("halves", sinusoids_in_halves)):
        if torch.allclose(table, sines(len(table), width), rtol=0, atol=2e-3):
            return None, {"positions": kind}
    return learned_positions(table, recipe)
