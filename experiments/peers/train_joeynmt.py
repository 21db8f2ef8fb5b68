"""JoeyNMT, from raw text to a translated test set, by its own commands.

The settings are those of JoeyNMT's configs/transformer_iwslt14_deen_sp.yaml, a Transformer for
160,000 pairs of text, with these differences: the sub-words, sentences of up to 100 sub-words,
batches of 4,096 tokens (there: 4,096 on each of two GPUs), text with its capitals, and fp32. With
--small, shape, dropout and learning rate are those of `time-30m-02` in experiments/budget. With
--recurrent, they are those of configs/iwslt_deen_bahdanau.yaml, a recurrent model; only its
embeddings are shared here.
"""

import argparse
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from text import SMALL_HELP, SOURCE, TRAIN, VALID, arguments, learn_sub_words, symbols


def main() -> None:
    options = arguments(
        __doc__,
        small=SMALL_HELP,
        recurrent="train a recurrent model",
        often="validate after each 250 steps, not 1,000",
    )
    shape = "recurrent" if options.recurrent else "small" if options.small else "iwslt"
    sub_words = learn_sub_words(options)
    vocabulary = options.out / "vocabulary.txt"
    vocabulary.write_text("\n".join(symbols(sub_words)) + "\n", encoding="utf-8")
    recipe = settings(options, sub_words, vocabulary, shape)
    path = options.out / "config.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    train(path, 60 * options.minutes)
    recipe["testing"]["load_model"] = str(options.out / "model" / "latest.ckpt")
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    subprocess.run([*joeynmt("test", path), "-o", str(options.out / "out")], check=True)


def joeynmt(mode: str, path: Path) -> list[str]:
    return [sys.executable, "-m", "joeynmt", mode, str(path)]


def train(path: Path, seconds: float) -> None:
    """Train until the time is over; at an interrupt JoeyNMT saves the weights that it has."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & has it ignored
    process = subprocess.Popen([*joeynmt("train", path), "--skip-test"])
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    if process.wait() != 0:
        sys.exit("JoeyNMT's training failed; its last lines say why.")


def settings(
    options: argparse.Namespace, sub_words: Path, vocabulary: Path, shape: str
) -> dict[str, Any]:
    """A configuration of JoeyNMT 2.3."""
    data, out = options.data, options.out
    text = {
        "lowercase": False,
        "level": "bpe",
        "max_length": 100,
        "voc_file": str(vocabulary),
        "tokenizer_type": "sentencepiece",
        "tokenizer_cfg": {"model_file": str(sub_words), "pretokenizer": "none"},
    }
    return {
        "name": data.name,
        "joeynmt_version": "2.3.0",
        "model_dir": str(out / "model"),
        "use_cuda": False,
        "random_seed": 42,
        "data": {
            "train": str(data / TRAIN),
            "dev": str(data / VALID),
            "test": str(data / options.test),
            "dataset_type": "plain",
            "src": {"lang": SOURCE} | text,
            "trg": {"lang": options.target} | text,
        },
        "testing": {
            "beam_size": 5,
            "beam_alpha": 1.0,
            "batch_size": 1024,
            "batch_type": "token",
            "max_output_length": 100,
            "eval_metrics": ["bleu"],
            "sacrebleu_cfg": {"tokenize": "13a"},
        },
        "training": {
            "optimizer": "adam",
            "loss": "crossentropy",
            "learning_rate_min": 1e-8,
            "weight_decay": 0.0,
            "early_stopping_metric": "bleu",
            "epochs": 100,
            "validation_freq": 250 if options.often else 1000,
            "logging_freq": 50,
            "keep_best_ckpts": 5,
            **RATES[shape],
        },
        "model": {
            "initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "init_gain": 1.0,
            "tied_embeddings": True,
            "tied_softmax": True,
            **SHAPES[shape],
        },
    }


def both_stacks(
    layers: int, width: int, inner: int, dropout: float, embedding_dropout: float, norm: str
) -> dict[str, Any]:
    stack = {
        "type": "transformer",
        "num_layers": layers,
        "num_heads": 4,
        "embeddings": {"embedding_dim": width, "scale": True, "dropout": embedding_dropout},
        "hidden_size": width,
        "ff_size": inner,
        "dropout": dropout,
        "layer_norm": norm,
    }
    return {"encoder": stack, "decoder": dict(stack)}


LOW_RESOURCE = {
    "embed_initializer": "xavier_uniform",
    "embed_init_gain": 1.0,
    **both_stacks(layers=6, width=256, inner=1024, dropout=0.3, embedding_dropout=0.0, norm="pre"),
}
TRANSFORMER_BATCH = {
    "normalization": "tokens",
    "label_smoothing": 0.1,
    "batch_size": 4096,
    "batch_type": "token",
}
CONSTANT = {"scheduling": "exponential", "decrease_factor": 1.0}
"""In JoeyNMT's files the rate falls after validations without progress. JoeyNMT 2.3 cannot start
that schedule with PyTorch 2.13, so the rate is constant here."""
LOW_RESOURCE_RATE = {
    **TRANSFORMER_BATCH,
    **CONSTANT,
    "adam_betas": [0.9, 0.999],
    "learning_rate": 3e-4,
}
SMALL = {
    "embed_initializer": "normal",
    "embed_init_weight": 128**-0.5,
    **both_stacks(layers=4, width=128, inner=256, dropout=0.2, embedding_dropout=0.2, norm="post"),
}
SMALL_RATE = {
    **TRANSFORMER_BATCH,
    "adam_betas": [0.9, 0.98],
    "scheduling": "noam",
    "learning_rate_factor": 2,
    "learning_rate_warmup": 1000,
}
_CELLS = {"type": "recurrent", "rnn_type": "lstm", "hidden_size": 256, "num_layers": 1}
_WORDS = {"embeddings": {"embedding_dim": 256, "scale": False}}
RECURRENT = {
    "encoder": {**_CELLS, **_WORDS, "bidirectional": True, "dropout": 0.0},
    "decoder": {
        **_CELLS,
        **_WORDS,
        "dropout": 0.2,
        "hidden_dropout": 0.2,
        "input_feeding": True,
        "init_hidden": "last",
        "attention": "luong",
    },
}
RECURRENT_RATE = {**CONSTANT, "learning_rate": 1e-3, "batch_size": 64, "batch_type": "sentence"}
SHAPES: dict[str, dict[str, Any]] = {"iwslt": LOW_RESOURCE, "small": SMALL, "recurrent": RECURRENT}
RATES: dict[str, dict[str, Any]] = {
    "iwslt": LOW_RESOURCE_RATE,
    "small": SMALL_RATE,
    "recurrent": RECURRENT_RATE,
}


if __name__ == "__main__":
    main()
