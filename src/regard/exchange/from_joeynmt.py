"""`regard import joeynmt`: read the model directory of a Transformer that JoeyNMT trained."""

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from regard.errors import ModelError
from regard.exchange.foreign import (
    LONGEST_SOURCE,
    Foreign,
    ForeignConfig,
    foreign_recipe,
    most_extra,
    not_run,
)
from regard.exchange.matrices import ForeignMatrices
from regard.exchange.positions import refuse_other_sinusoids
from regard.exchange.reading import parse_yaml, read_pickled, tensors_of, text_of_file
from regard.exchange.texts import SpecialNames, Texts, tokenizer_of
from regard.exchange.weights import ForeignWeights, layers
from regard.recipe import WIDEST_BEAM, Recipe
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
_SEARCH: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (-1, 0, 1, 1.0),
    "no_repeat_ngram_size": (-1, 0),
    "generate_unk": (True,),
    "min_output_length": (1, 0, -1),
}
"""Keys of the search, each with the values that can be imported; other values are refused."""
_LINEAR = {"q": "q_layer", "k": "k_layer", "v": "v_layer", "o": "output_layer"}
_FEED_FORWARD = {"1": "pwff_layer.0", "2": "pwff_layer.3", "norm": "layer_norm"}


def read_joeynmt(directory: Path, texts: Texts | None = None) -> Foreign:
    """Read config.yaml, a checkpoint and the vocabularies of a directory.

    If `texts` names vocabularies, they replace those in the directory. If `texts` names other files
    or languages, they replace those that config.yaml names. Raises ModelError for a file that is
    missing or damaged, or a model that cannot be converted exactly; MissingExtra if a package is
    not installed; RecipeError for an invalid language code, or if `texts` names too many files or
    languages, or files and languages that cannot be combined.
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
    names, restricted = _special_names(config.section("data")), _cuts(config)
    tokenizer = tokenizer_of(texts, (sources, targets), names, restricted=restricted)
    recipe = _recipe(config, weights, targets)
    found, fields = _converted(weights, config, recipe, tokenizer)
    files, side = texts.checksums(config.where, path), not_run("regard does not run JoeyNMT")
    return Foreign("joeynmt", directory, recipe.but(**fields), found, tokenizer, files, side)


def _checkpoint(directory: Path) -> Path:
    """The path of the directory's checkpoint.

    The checkpoint is the first of `_CHECKPOINTS` that exists or, if none exists, the only .ckpt
    file. If one of `_CHECKPOINTS` is a symbolic link, only the file name of the link's target is
    used, and the file must be in `directory`. Raises ModelError if none of `_CHECKPOINTS` exists
    and the directory does not have exactly one .ckpt file.
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
    """The files and languages of the tokenizer.

    The vocabularies are those of `given` or, if there are none, those in the directory. If `given`
    has other files or languages, the configuration's files and languages are not used.
    Raises ModelError if no tokenizer of regard divides the text in the configured way.
    """
    own = [directory / name for name in ("src_vocab.txt", "trg_vocab.txt")]
    vocabularies = given.vocabularies or own
    sections = [_section(config, side) for side in ("src", "trg")]
    _refuse_other_text(config.section("data"), sections)
    if any((given.cutters, given.codes, given.languages)):
        return replace(given, vocabularies=vocabularies)
    source, target = (_side(section, cuts=_cuts(config)) for section in sections)
    if (source.kind, bool(source.language)) != (target.kind, bool(target.language)):
        raise ModelError(
            f"{config.where}: no tokenizer here cuts source and target by different rules"
        )
    names = [side.file for side in (source, target) if side.file]
    files = list(dict.fromkeys(directory / Path(name).name for name in names))
    languages = [source.language, target.language] if source.language else []
    if source.kind == "subword-nmt":
        return Texts(vocabularies, (), files, languages)
    return Texts(vocabularies, files, (), languages)


def _special_names(data: ForeignConfig) -> SpecialNames:
    """The names of the special pieces; raises ModelError if two of them have the same name."""
    if "special_symbols" not in data:
        return SpecialNames("<pad>", "<s>")
    symbols = data.section("special_symbols")
    usual = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    names = [symbols.word(key, name) for key, name in usual.items()]
    if len(set(names)) < len(names):
        raise data.refusal("special_symbols", "four different names of pieces")
    return SpecialNames(*names)


def _cuts(config: ForeignConfig) -> bool:
    """Whether the configuration is of JoeyNMT 2 or later, where `data` has a section "src".

    JoeyNMT 2 divides words itself, and only into pieces of the vocabulary. JoeyNMT 1 reads text
    whose words have been divided already.
    """
    return isinstance(config.section("data").get("src"), dict)


def _section(config: ForeignConfig, side: str) -> ForeignConfig:
    """The section of the configuration that describes the text of `side`, "src" or "trg".

    In JoeyNMT 1, one section describes both source and target.
    """
    data = config.section("data")
    return data.section(side) if _cuts(config) else data


def _refuse_other_text(data: ForeignConfig, sides: list[ForeignConfig]) -> None:
    """Raise ModelError if no tokenizer of regard can change and divide text as configured."""
    if "special_symbols" in data:
        symbols = data.section("special_symbols")
        symbols.only("lang_tags", [])
        symbols.only("sep_token", None)
    for section in sides:
        for key in ("lowercase", "normalize"):
            if section.get(key):
                raise section.refusal(key, "false: no tokenizer here does that")
        if section.get("level", "bpe") not in ("bpe", "word"):
            raise section.refusal("level", "bpe or word: no tokenizer here cuts text into letters")


class _Side(NamedTuple):
    """How the text of the source, or of the target, is divided into pieces.

    `kind` is "sentencepiece" or "subword-nmt", or "word" if words are not divided. `file` is the
    file of the sub-word model, or "" if the configuration names no file. `language` is the language
    for Moses' tokenizer, or "" if Moses' tokenizer is not used.
    """

    kind: str
    file: str
    language: str


def _side(section: ForeignConfig, *, cuts: bool) -> _Side:
    """How the text of the source, or of the target, is divided into pieces.

    `section` is the section of the configuration that describes this text (`_section`). `cuts`
    tells whether JoeyNMT divides words itself (`_cuts`). Raises ModelError if no tokenizer
    of regard divides text in this way, or if JoeyNMT divides words by a sub-word model and the
    configuration does not name the file of this model.
    """
    about = section.section("tokenizer_cfg") if "tokenizer_cfg" in section else section
    about.only("pretokenizer", "none", "moses")
    about.only("separator", "@@")
    language = section.word("lang") if about.get("pretokenizer") == "moses" else ""
    if section.get("level") == "word":
        return _Side("word", "", language)
    key = "tokenizer_type" if "tokenizer_type" in section else "bpe_type"
    kinds = {name: name for name in ("sentencepiece", "subword-nmt")}
    kind = section.choice(key, kinds, "sentencepiece")
    if language and kind == "sentencepiece":
        raise about.refusal("pretokenizer", "none where SentencePiece divides the text")
    if cuts and "model_file" not in about and "codes" not in about:
        raise about.refusal("model_file", "the file of the sub-word model")
    name = about.get("model_file", about.get("codes", ""))
    return _Side(kind, name if isinstance(name, str) else "", language)


def _recipe(config: ForeignConfig, weights: ForeignWeights, targets: int) -> Recipe:
    model, pre = config.section("model"), "encoder.layer_norm.weight" in weights
    encoder, decoder = model.section("encoder"), model.section("decoder")
    scales = [_scale(encoder, "pre", pre=pre), _scale(decoder, "pre" if pre else "post", pre=pre)]
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


def _scale(stack: ForeignConfig, usual: str, *, pre: bool) -> bool:
    """Check that a stack (encoder or decoder) can be imported.

    Returns whether the stack multiplies its embeddings by sqrt(d_model). `stack` is the
    configuration of the stack. `usual` is the value of `layer_norm` if the configuration lacks this
    key. `pre` tells whether the weights have a LayerNorm after the encoder's last layer; if so,
    `layer_norm` must be "pre", and if not, "post". Raises ModelError if `layer_norm` or another
    setting of the stack cannot be imported.
    """
    stack.only("type", "transformer")
    stack.only("alpha", 1.0, 1)
    stack.only("activation", "relu")
    if (found := stack.get("layer_norm", usual)) != ("pre" if pre else "post"):
        raise ModelError(
            f"{stack.where}: a stack's layer_norm is {found!r}, and the weights have "
            f"{'a' if pre else 'no'} norm after the encoder's last layer: regard has no such model"
        )
    return stack.section("embeddings").flag("scale", False)


def _search(config: ForeignConfig) -> dict[str, Any]:
    """The recipe's fields for the configured beam search.

    JoeyNMT and regard use the same length penalty (§6.1). Without the key `beam_size`, JoeyNMT
    searches greedily. In JoeyNMT 1, the section `training` has the maximum length of an output.
    Raises ModelError for a search that no recipe can describe.
    """
    testing = config.section("testing") if isinstance(config.get("testing"), dict) else config
    for key, values in _SEARCH.items():
        testing.only(key, *values)
    beam = testing.whole("beam_size", 1, most=WIDEST_BEAM + 1)
    alpha = testing.real("alpha" if "alpha" in testing else "beam_alpha", -1, least=-1e9)
    found = {"beam": max(1, beam), "alpha": max(0.0, alpha)}
    trained = isinstance(config.get("training"), dict)
    for place in (testing, config.section("training") if trained else config):
        if (limit := place.whole("max_output_length", -1, least=-1)) > 0:
            return found | {"max_extra": most_extra(limit, beam)}
    return found


def _converted(
    weights: ForeignWeights, config: ForeignConfig, recipe: Recipe, tokenizer: ForeignTokenizer[Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights under regard's names, and the recipe fields that the weights determine."""
    model, width = recipe.model, recipe.model.d_model
    keys = config.section("model")
    sizes = tokenizer.order_of("source").size, tokenizer.order.size
    source = weights.take("src_embed.lut.weight", sizes[0], width)
    target = _own(weights, keys, "tied_embeddings", "trg_embed.lut.weight", source, sizes[1])
    output = _own(weights, keys, "tied_softmax", "decoder.output_layer.weight", target, sizes[1])
    matrices = ForeignMatrices.begun_by_entry(tokenizer, source, target, output, None, config.where)
    found = layers(weights, model, _part) | matrices.weights()
    for stack in ("encoder", "decoder"):
        refuse_other_sinusoids(weights, f"{stack}.pe.pe", width, config.where)
    weights.finish()
    return found, matrices.fields


def _own(
    weights: ForeignWeights, keys: ForeignConfig, tied: str, name: str, other: Tensor, entries: int
) -> Tensor:
    """[entries, d_model] The matrix `name` or, if the value of the key `tied` is true, `other`.

    `keys` is the section `model` of the configuration.
    """
    if keys.flag(tied, False):
        weights.drop([name])
        return other
    return weights.take(name, entries, other.shape[1])


def _part(stack: str, i: int, part: str) -> str:
    kind, _, what = part.partition(".")
    layer, place = f"{stack}.layers.{i}", f"{stack}.{kind}"
    if kind == "ff":
        return f"{layer}.feed_forward.{_FEED_FORWARD[what]}"
    if what == "norm":
        return f"{layer}.{_NORMS[place]}"
    return f"{layer}.{_ATTENTION[place]}.{_LINEAR[what]}"
