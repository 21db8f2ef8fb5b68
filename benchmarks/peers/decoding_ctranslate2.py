"""CTranslate2 decodes with the weights of a model directory of regard."""

import tempfile
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from decoding_task import BOS, EOS, LONGEST, PAD, arguments, in_turn, read_model, read_sentences
from worker import Turn, serve

COMPUTE_TYPES = {"fp32": "float32", "bf16": "bfloat16", "int8": "int8"}
Weights = dict[str, np.ndarray]


def convert(directory: Path, out: str) -> None:
    """Write a model as CTranslate2 keeps it, in fp32; tokens are named by their ids."""
    recipe, weights = read_model(directory)
    layers = (recipe["layers"], recipe["decoder_layers"])
    spec = TransformerSpec.from_config(layers, recipe["heads"], pre_norm=False)
    embedding = weights["embedding.tokens.weight"]
    for stack in (spec.encoder, spec.decoder):
        stack.scale_embeddings = recipe["d_model"] ** 0.5
        stack.position_encodings.encodings = weights["embedding.positions"]
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        for i, layer in enumerate(stack.layer):
            set_layer(layer, weights, f"{name}.{i}")
    names = [str(i) for i in range(len(embedding))]
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.unk_token = str(PAD)
    spec.config.bos_token = spec.config.decoder_start_token = str(BOS)
    spec.config.eos_token = str(EOS)
    spec.config.layer_norm_epsilon = 1e-6
    spec.validate()
    spec.optimize()
    spec.save(out)


def set_layer(layer: Any, weights: Weights, name: str) -> None:
    """A layer of either stack; CTranslate2 keeps a sub-layer's normalisation within it."""
    set_attention(layer.self_attention, weights, f"{name}.self_attention", ["qkv", "o"])
    sublayers = [layer.self_attention]
    if f"{name}.cross_attention.W_q.weight" in weights:
        set_attention(layer.attention, weights, f"{name}.cross_attention", ["q", "kv", "o"])
        sublayers.append(layer.attention)
    set_linear(layer.ffn.linear_0, weights, [f"{name}.feed_forward.W_1"])
    set_linear(layer.ffn.linear_1, weights, [f"{name}.feed_forward.W_2"])
    sublayers.append(layer.ffn)
    for i, sublayer in enumerate(sublayers, start=1):
        sublayer.layer_norm.gamma = weights[f"{name}.add_norm_{i}.norm.weight"]
        sublayer.layer_norm.beta = weights[f"{name}.add_norm_{i}.norm.bias"]


def set_attention(spec: Any, weights: Weights, name: str, projections: list[str]) -> None:
    """Projections named together are one matrix in CTranslate2."""
    for linear, letters in zip(spec.linear, projections, strict=True):
        set_linear(linear, weights, [f"{name}.W_{letter}" for letter in letters])


def set_linear(spec: Any, weights: Weights, names: list[str]) -> None:
    spec.weight = np.concatenate([weights[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([weights[f"{name}.bias"] for name in names])


def start() -> tuple[dict[str, Any], Turn]:
    parser = arguments()
    parser.add_argument("--batch", type=int, default=64, help="sentences in a batch")
    parser.add_argument("--by-thread", action="store_true", help="one thread for each batch")
    args = parser.parse_args()
    batches, threads = (args.threads, 1) if args.by_thread else (1, args.threads)
    with tempfile.TemporaryDirectory() as folder:
        convert(args.model, folder)
        translator = ctranslate2.Translator(
            folder,
            compute_type=COMPUTE_TYPES[args.precision],
            inter_threads=batches,
            intra_threads=threads,
        )
    lengths = {"max_decoding_length": args.length or LONGEST}
    if args.length:
        lengths["min_decoding_length"] = args.length

    def translate(sources: list[list[str]]) -> list[list[int]]:
        results = translator.translate_batch(
            sources,
            max_batch_size=args.batch,  # it sorts them by length
            beam_size=args.beam,
            length_penalty=args.alpha,
            **lengths,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    about = {
        "name": "CTranslate2",
        "version": {"ctranslate2": ctranslate2.__version__},
        "precision": translator.compute_type,
        "threads": f"{batches} x {threads}",
    }
    sources = [[str(piece) for piece in pieces] for pieces in read_sentences(args, "pieces")]
    return about, in_turn(args, sources, translate)


if __name__ == "__main__":
    serve(start)
