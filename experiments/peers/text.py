"""The command line, the text and the sub-words of the programs that are compared."""

import argparse
import sys
from pathlib import Path

import sentencepiece

SOURCE, TARGET = "en", "de"
TRAIN, VALID, TEST = "train", "val", "test_2016_flickr"  # Multi30k's names
SUB_WORDS = (
    8000  # of both languages together: as many as `regard train --time` chooses for this text
)


SMALL_HELP = "take shape, dropout and rate from the run time-30m-02 of experiments/budget"
"""The help of the option --small."""


def arguments(about: str, **switches: str) -> argparse.Namespace:
    """The command line of a program; `switches` has the help of further options."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("data", type=Path, help="the folder of Multi30k: train.en, train.de, ...")
    parser.add_argument("out", type=Path, help="a new folder for the run")
    parser.add_argument("--minutes", type=float, default=30, help="of training; default: 30")
    for name, text in switches.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parsed = parser.parse_args()
    if parsed.out.exists():
        sys.exit(f"{parsed.out} exists already: name a new folder.")
    parsed.out.mkdir(parents=True)
    return parsed


def lines(data: Path, name: str, language: str) -> list[str]:
    """The lines of a file; only a line feed ends a line, so that both languages keep in step."""
    return (data / f"{name}.{language}").read_text(encoding="utf-8").removesuffix("\n").split("\n")


def learn_sub_words(data: Path, out: Path) -> Path:
    """Learn sub-words from both languages, and return the path of SentencePiece's model."""
    sentencepiece.SentencePieceTrainer.train(
        input=[str(data / f"{TRAIN}.{language}") for language in (SOURCE, TARGET)],
        model_prefix=str(out / "sub-words"),
        vocab_size=SUB_WORDS,
        character_coverage=1.0,
        minloglevel=1,
    )
    return out / "sub-words.model"


def symbols(model: Path) -> list[str]:
    """The sub-words in the model's order, without its own <unk>, <s> and </s>."""
    learned = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [learned.id_to_piece(i) for i in range(3, learned.vocab_size())]
