"""OpenNMT-py's convolutional model, from raw text to a translated test set, by its own commands.

OpenNMT-py documents no settings for this model. So shape, dropout, smoothing and batches are those
of the convolutional row of Table 2 at scale small (experiments/tables): 8 layers of width 128 on
each side, kernels of 3, one embedding matrix, batches of 2,048 target tokens. The learning rate is
that of OpenNMT-py's Transformer, a factor of 2 on equation (3), with a warm-up of 400 steps.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from text import SOURCE, TRAIN, VALID, arguments, learn_sub_words, symbols

SAVED = 20
"""A checkpoint is saved after so many steps; the last one of the time translates."""


def main() -> None:
    options = arguments(__doc__)
    out, sub_words = options.out, learn_sub_words(options)
    (out / "vocabulary.txt").write_text("\n".join(symbols(sub_words)) + "\n", encoding="utf-8")
    path = out / "config.yaml"
    recipe = settings(options, sub_words)
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    train(path, 60 * options.minutes)
    translate(options, sub_words)


def train(config: Path, seconds: float) -> None:
    """Train until the time is over."""
    command = [sys.executable, "-m", "onmt.bin.train", "--config", str(config)]
    process = subprocess.Popen(command)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)
        process.wait()
    else:
        sys.exit("OpenNMT-py's training ended too early; its last lines say why.")


def translate(options: argparse.Namespace, sub_words: Path) -> None:
    """Translate the test set by the last checkpoint, with beam 5 and length penalty 1.0."""
    out, source = options.out, options.data / f"{options.test}.{SOURCE}"
    last = max(out.glob("model_step_*.pt"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    command = [sys.executable, "-m", "onmt.bin.translate", "--model", str(last)]
    command += ["--src", str(source), "--output", str(out / "out.test")]
    command += ["--transforms", "sentencepiece", "--src_subword_model", str(sub_words)]
    command += ["--tgt_subword_model", str(sub_words), "--max_length", "100"]
    command += ["--beam_size", "5", "--length_penalty", "wu", "--alpha", "1.0"]
    # PyTorch 2.6 and newer refuse OpenNMT-py's own checkpoints unless they are told to trust them.
    subprocess.run(command, check=True, env=os.environ | {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})


def settings(options: argparse.Namespace, sub_words: Path) -> dict[str, Any]:
    """A configuration of OpenNMT-py 3.0."""
    data, out = options.data, options.out
    return {
        "data": {
            name: {
                "path_src": str(data / f"{part}.{SOURCE}"),
                "path_tgt": str(data / f"{part}.{options.target}"),
                "transforms": ["sentencepiece", "filtertoolong"],
            }
            for name, part in (("corpus", TRAIN), ("valid", VALID))
        },
        "src_vocab": str(out / "vocabulary.txt"),
        "share_vocab": True,
        "src_subword_model": str(sub_words),
        "tgt_subword_model": str(sub_words),
        "src_seq_length": 100,
        "tgt_seq_length": 100,
        "save_model": str(out / "model"),
        "save_checkpoint_steps": SAVED,
        "keep_checkpoint": 2,
        "train_steps": 1_000_000,
        "valid_steps": 1_000_000,
        "report_every": SAVED,
        "num_workers": 0,
        "seed": 42,
        "encoder_type": "cnn",
        "decoder_type": "cnn",
        "layers": 8,
        "hidden_size": 128,
        "word_vec_size": 128,
        "cnn_kernel_width": 3,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "position_encoding": True,
        "param_init_glorot": True,
        "dropout": [0.1],
        "label_smoothing": 0.1,
        "batch_type": "tokens",
        "batch_size": 2048,
        "normalization": "tokens",
        "optim": "adam",
        "adam_beta2": 0.98,
        "max_grad_norm": 0.0,
        "decay_method": "noam",
        "learning_rate": 2.0,
        "warmup_steps": 400,
    }


if __name__ == "__main__":
    main()
