"""`regard import opennmt`: read the .pt file of a Transformer that OpenNMT-py 3 trained."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import ModelError
from regard.exchange.foreign import LONGEST_SOURCE, Foreign, ForeignConfig, foreign_recipe, not_run
from regard.exchange.matrices import ForeignMatrices
from regard.exchange.positions import refuse_other_sinusoids
from regard.exchange.reading import read_pickled, tensors_of
from regard.exchange.texts import SpecialNames, Texts, Vocabulary, tokenizer_of
from regard.exchange.weights import ForeignWeights, layers
from regard.recipe import Recipe
from regard.text.foreign.base import ForeignTokenizer

_ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}
_LONGEST_OUTPUT = 250
"""By default, an output of OpenNMT-py has at most this many pieces. The file of a model does not
store a limit."""
_PAD, _BEGIN = "<blank>", "<s>"
_ONLY: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "max_relative_positions": (0,),
    "relative_positions_buckets": (0,),
    "position_encoding": (True,),
    "position_encoding_type": ("SinusoidalInterleaved",),
    "parallel_residual": (False,),
    "layer_norm": ("standard",),
    "multiquery": (False,),
    "num_kv": (0,),
    "num_experts": (0,),
    "copy_attn": (False,),
    "generator_function": ("softmax",),
    "src_feats_vocab": (None, {}, []),
    "add_estimator": (False,),
}
"""Options that change the model, with the values that can be imported; other values are refused."""
_LINEAR = {"q": "linear_query", "k": "linear_keys", "v": "linear_values", "o": "final_linear"}
_FEED_FORWARD = {"1": "w_1", "2": "w_2", "norm": "layer_norm"}


def read_opennmt(path: Path, texts: Texts) -> Foreign:
    """Read a .pt file, which contains the model and its vocabularies.

    `texts` names SentencePiece models, or files of merges by subword-nmt and languages for Moses'
    tokenizer. Raises ModelError for a file that is missing or damaged, or a model that cannot be
    converted exactly; MissingExtra if a package is not installed; RecipeError if `texts` names too
    many files, an invalid language code, or files and languages that cannot be combined.
    """
    content = read_pickled(path)
    if not isinstance(content, dict) or not {"model", "generator", "opt", "vocab"} <= set(content):
        raise ModelError(f"{path}: has no model, generator, opt and vocab: not of OpenNMT-py")
    keys, known = _options(content["opt"], path), _vocabularies(content["vocab"], path)
    tensors = tensors_of(content["model"], path)
    for name, tensor in tensors_of(content["generator"], path).items():
        tensors[f"generator.{name.removeprefix('0.')}"] = tensor
    weights = ForeignWeights(tensors, path, biases=False)
    sizes = len(known[0]), len(known[-1])
    tokenizer = tokenizer_of(texts, sizes, SpecialNames(_PAD, _BEGIN), given=known)
    recipe = _recipe(keys, sizes[1])
    found, fields = _converted(weights, recipe, tokenizer, path)
    files, side = texts.checksums(path), not_run("regard does not run OpenNMT-py")
    return Foreign("opennmt", path, recipe.but(**fields), found, tokenizer, files, side)


def _options(opt: Any, path: Path) -> ForeignConfig:
    options = vars(opt) if isinstance(opt, Namespace) else opt
    if not isinstance(options, dict):
        raise ModelError(f"{path}: its opt holds no options: not of OpenNMT-py")
    keys = ForeignConfig({str(key): one for key, one in options.items() if one is not None}, path)
    for key, values in _ONLY.items():
        keys.only(key, *values)
    return keys


def _vocabularies(vocab: Any, path: Path) -> list[Vocabulary]:
    """The vocabularies of source and target, or only one vocabulary if both are equal.

    Raises ModelError if `vocab` does not hold the vocabularies as OpenNMT-py 3 stores them, if a
    vocabulary has a piece twice, or if the decoder begins with another piece than <s>.
    """
    vocab = vocab if isinstance(vocab, dict) else {}
    begin = vocab.get("decoder_start_token", _BEGIN)
    if begin != _BEGIN:
        raise ModelError(
            f"{path}: its decoder_start_token is {begin!r:.80}: it must be {_BEGIN} to be "
            "converted exactly"
        )
    sides: list[list[str]] = []
    for name in ("src", "tgt"):
        side = vocab.get(name)
        if not isinstance(side, list) or not all(isinstance(piece, str) for piece in side):
            raise ModelError(
                f"{path}: its vocabularies are no lists of pieces, as OpenNMT-py 3 has them: have "
                "it convert an older file"
            )
        if len(set(side)) < len(side):
            raise ModelError(f"{path}: its vocabulary has a piece twice: repair it")
        sides.append(side)
    known = [{piece: i for i, piece in enumerate(side)} for side in sides]
    return known[:1] if known[0] == known[1] else known


def _recipe(keys: ForeignConfig, targets: int) -> Recipe:
    width = keys.whole("hidden_size", keys.get("rnn_size"), least=2)
    for side in ("enc_hid_size", "dec_hid_size", "src_word_vec_size", "tgt_word_vec_size"):
        keys.only(side, width)
    return foreign_recipe(
        keys.where,
        targets,
        LONGEST_SOURCE,
        layers=keys.whole("enc_layers", least=1),
        decoder_layers=keys.whole("dec_layers", least=1),
        d_model=width,
        d_ff=keys.whole("transformer_ff", least=1),
        heads=keys.whole("heads", 8, least=1),
        activation=keys.choice("pos_ffn_activation_fn", _ACTIVATIONS, "relu"),
        norm="pre",
        norm_epsilon=keys.real("norm_eps", 1e-6),
        source_end=False,
        penalty="length",
        alpha=1.0,
        max_extra=_LONGEST_OUTPUT,
    )


def _converted(
    weights: ForeignWeights, recipe: Recipe, tokenizer: ForeignTokenizer[Any], path: Path
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights under regard's names, and the recipe fields that the weights determine."""
    model, width = recipe.model, recipe.model.d_model
    sizes = tokenizer.order_of("source").size, tokenizer.order.size
    source, target = (
        weights.take(f"{stack}.embeddings.make_embedding.emb_luts.0.weight", size, width)
        for stack, size in zip(("encoder", "decoder"), sizes, strict=True)
    )
    output, bias = weights.linear("generator", sizes[1], width)
    matrices = ForeignMatrices.begun_by_entry(tokenizer, source, target, output, bias, path)
    found = layers(weights, model, _part) | matrices.weights()
    for stack in ("encoder", "decoder"):
        table = f"{stack}.embeddings.make_embedding.pe.pe"
        refuse_other_sinusoids(weights, table, width, path)
    weights.finish()
    return found, matrices.fields


def _part(stack: str, i: int, part: str) -> str:
    kind, _, what = part.partition(".")
    layer = f"encoder.transformer.{i}" if stack == "encoder" else f"decoder.transformer_layers.{i}"
    if kind == "ff":
        return f"{layer}.feed_forward.{_FEED_FORWARD[what]}"
    if what == "norm":
        own = {"self": "layer_norm_1", "cross": "layer_norm_2"}[kind]
        return f"{layer}.{'layer_norm' if stack == 'encoder' else own}"
    return f"{layer}.{'self_attn' if kind == 'self' else 'context_attn'}.{_LINEAR[what]}"
