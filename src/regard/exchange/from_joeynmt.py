"""`regard import joeynmt`: read a model directory of JoeyNMT with a Transformer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.exchange.foreign import (
    LONGEST_SOURCE,
    Foreign,
    ForeignConfig,
    foreign_recipe,
    not_run,
)
from regard.exchange.matrices import ForeignMatrices
from regard.exchange.reading import parse_yaml, read_pickled, tensors_of, text_of_file
from regard.exchange.texts import SpecialNames, Texts, tokenizer_of
from regard.exchange.weights import ForeignWeights, last_norms, layers
from regard.layers import sinusoids
from regard.recipe import Recipe
from regard.text.foreign.base import ForeignTokenizer

_CHECKPOINTS = "best.ckpt", "avg_best.ckpt", "latest.ckpt"
_NORM_EPSILON = 1e-6
_ATTENTION = {
    "encoder.self": "src_src_att",
    "decoder.self": "trg_trg_att",
    "decoder.cross": "src_trg_att",
}
_NORMS = {
    "encoder.self": "layer_norm",
    "decoder.self": "x_layer_norm",
    "decoder.cross": "dec_layer_norm",
}
_LINEAR = {"q": "q_layer", "k": "k_layer", "v": "v_layer", "o": "output_layer"}
_FEED_FORWARD = {"1": "pwff_layer.0", "2": "pwff_layer.3", "norm": "layer_norm"}


def read_joeynmt(directory: Path, texts: Texts | None = None) -> Foreign:
    """Read config.yaml, a checkpoint and the vocabularies of a directory.

    `texts` names the files of the tokenizer, if they are not in the directory. Raises ModelError
    for a model that cannot be converted exactly, and RecipeError for files of `texts` that cannot
    be combined.
    """
    config = ForeignConfig(
        parse_yaml(text_of_file(directory / "config.yaml"), directory / "config.yaml"),
        directory / "config.yaml",
    )
    path = _checkpoint(directory)
    content = read_pickled(path)
    if not isinstance(content, dict) or "model_state" not in content:
        raise ModelError(f"{path}: has no model_state: it is not a checkpoint of JoeyNMT")
    weights = ForeignWeights(tensors_of(content["model_state"], path), path)
    sources = weights.shape("src_embed.lut.weight")[0]
    name = "trg_embed.lut.weight"
    targets = weights.shape(name)[0] if name in weights else sources
    texts = _texts(directory, config, texts or Texts())
    tokenizer = tokenizer_of(texts, (sources, targets), SpecialNames("<pad>", "<s>"))
    recipe = _recipe(config, weights, targets)
    found, fields = _converted(weights, config, recipe, tokenizer)
    files, side = texts.checksums(config.where, path), not_run("regard does not run JoeyNMT")
    return Foreign("joeynmt", directory, recipe.but(**fields), found, tokenizer, files, side)


def _checkpoint(directory: Path) -> Path:
    """The path of the directory's checkpoint.

    This is the first of `_CHECKPOINTS` that exists, else the only .ckpt file; raises ModelError if
    there is neither. In place of a link, the file in `directory` with the name of the link's target
    is taken.
    """
    for name in _CHECKPOINTS:
        path = directory / name
        if path.is_symlink():
            return directory / Path(path.readlink()).name
        if path.exists():
            return path
    found = sorted(directory.glob("*.ckpt"))
    if len(found) != 1:
        raise ModelError(f"{directory}: has {len(found)} checkpoints and no best.ckpt: leave one")
    return found[0]


def _texts(directory: Path, config: ForeignConfig, given: Texts) -> Texts:
    """The files of the tokenizer: the given ones, else the files of the directory."""
    own = [directory / name for name in ("src_vocab.txt", "trg_vocab.txt")]
    vocabularies = given.vocabularies or own
    if any((given.cutters, given.codes, given.languages)):
        return replace(given, vocabularies=vocabularies)
    sides = [_side(config, side) for side in ("src", "trg")]
    files = list(dict.fromkeys(directory / Path(name).name for name, _ in sides if name))
    languages = [language for _, language in sides if language]
    if _section(config, "src").get("tokenizer_type", "sentencepiece") == "subword-nmt":
        return Texts(vocabularies, (), files, languages)
    return Texts(vocabularies, files, (), languages)


def _section(config: ForeignConfig, side: str) -> ForeignConfig:
    """The configuration of one side's text. JoeyNMT 1 has one configuration for both sides."""
    data = config.section("data")
    return data.section(side) if isinstance(data.get(side), dict) else data


def _side(config: ForeignConfig, side: str) -> tuple[str, str]:
    """A side's sub-word file, and its language for Moses' tokenizer; each is "" if not used."""
    section = _section(config, side)
    for key in ("lowercase", "normalize"):
        if section.get(key):
            raise section.refusal(key, "false: no tokenizer here does that")
    about = section.section("tokenizer_cfg") if "tokenizer_cfg" in section else section
    name = about.get("model_file", about.get("codes", ""))
    moses = about.get("pretokenizer", "none") == "moses"
    return name if isinstance(name, str) else "", section.word("lang") if moses else ""


def _recipe(config: ForeignConfig, weights: ForeignWeights, targets: int) -> Recipe:
    model = config.section("model")
    encoder, decoder = model.section("encoder"), model.section("decoder")
    pre = "encoder.layer_norm.weight" in weights
    scales = []
    for stack in (encoder, decoder):
        stack.only("type", "transformer")
        stack.only("alpha", 1.0, 1)
        stack.only("activation", "relu")
        if stack.get("layer_norm", "pre" if pre else "post") != ("pre" if pre else "post"):
            raise stack.refusal("layer_norm", "that of the weights")
        scales.append(stack.section("embeddings").flag("scale", False))
    if "deepnet" in str(model.get("initializer", "")):
        raise model.refusal("initializer", "without the factors of DeepNet")
    if scales[0] != scales[1] or encoder.whole("hidden_size") != decoder.whole("hidden_size"):
        raise ModelError(f"{config.where}: encoder and decoder differ in hidden_size or scale")
    return foreign_recipe(
        config.where,
        targets,
        LONGEST_SOURCE,
        layers=encoder.whole("num_layers", least=1),
        decoder_layers=decoder.whole("num_layers", least=1),
        d_model=encoder.whole("hidden_size", least=2),
        d_ff=encoder.whole("ff_size", least=1),
        decoder_d_ff=decoder.whole("ff_size", least=1),
        heads=encoder.whole("num_heads", least=1),
        decoder_heads=decoder.whole("num_heads", least=1),
        norm="pre" if pre else "post",
        norm_epsilon=_NORM_EPSILON,
        embedding_scale=scales[0],
        dropout=min(encoder.real("dropout", 0.1), 0.9),
        **_search(config),
    )


def _search(config: ForeignConfig) -> dict[str, Any]:
    """The recipe's fields for the configured beam search; JoeyNMT has the penalty of §6.1, too."""
    testing = config.section("testing") if isinstance(config.get("testing"), dict) else config
    beam, alpha = testing.get("beam_size", 4), testing.get("beam_alpha", testing.get("alpha", 0.6))
    beam = beam if isinstance(beam, int) and 1 <= beam <= 1000 else 4
    alpha = float(alpha) if isinstance(alpha, int | float) and 0 <= alpha <= 10 else 0.0
    return {"beam": beam, "alpha": alpha}


def _converted(
    weights: ForeignWeights, config: ForeignConfig, recipe: Recipe, tokenizer: ForeignTokenizer[Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The weights under our names, and the fields of the recipe that follow from the weights."""
    model, width = recipe.model, recipe.model.d_model
    keys = config.section("model")
    sizes = len(tokenizer.order_of("source").ids), tokenizer.order.size
    source = weights.take("src_embed.lut.weight", sizes[0], width)
    target = _own(weights, keys, "tied_embeddings", "trg_embed.lut.weight", source, sizes[1])
    output = _own(weights, keys, "tied_softmax", "decoder.output_layer.weight", target, sizes[1])
    matrices = ForeignMatrices.begun_by_entry(tokenizer, source, target, output, None, config.where)
    found = layers(weights, model, _part) | matrices.weights()
    if model.norm == "pre":
        names = {stack: f"{stack}.layer_norm" for stack in ("encoder", "decoder")}
        found |= last_norms(weights, names, model)
    for stack in ("encoder", "decoder"):
        refuse_other_sinusoids(weights, f"{stack}.pe.pe", width, config.where)
    weights.finish()
    return found, matrices.fields


def _own(
    weights: ForeignWeights, keys: ForeignConfig, tied: str, name: str, other: Tensor, entries: int
) -> Tensor:
    """[entries, d_model] The matrix `name`; `other` if the key `tied` says that both are one."""
    if keys.flag(tied, False):
        weights.drop([name])
        return other
    return weights.take(name, entries, other.shape[1])


def refuse_other_sinusoids(weights: ForeignWeights, name: str, width: int, where: Path) -> None:
    """Take the table of positions with this name, if it is stored.

    Raises ModelError if the table differs from the sinusoids of §3.5.
    """
    if name not in weights:
        return
    table = weights.take_any(name).reshape(-1, width)
    if not torch.allclose(table, sinusoids(len(table), width), rtol=0, atol=2e-3):
        raise ModelError(f"{where}: {name} holds other positions than the sinusoids of §3.5")


def _part(stack: str, i: int, part: str) -> str:
    kind, _, what = part.partition(".")
    layer, place = f"{stack}.layers.{i}", f"{stack}.{kind}"
    if kind == "ff":
        return f"{layer}.feed_forward.{_FEED_FORWARD[what]}"
    if what == "norm":
        return f"{layer}.{_NORMS[place]}"
    return f"{layer}.{_ATTENTION[place]}.{_LINEAR[what]}"
