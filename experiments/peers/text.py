"""The command line, the text and the sub-words of the programs that are compared."""

import argparse
import sys
from pathlib import Path

import sentencepiece

SOURCE = "en"
TRAIN, VALID = "train", "val"  # Multi30k's names


SMALL_HELP = "take shape, dropout and rate from the run time-30m-02 of experiments/budget"
"""The help of the option --small."""


def arguments(about: str, **switches: str) -> argparse.Namespace:
    """The command line of a program; `switches` has the help of further options."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("data", type=Path, help="a folder as Multi30k's: train.en, val.de, ...")
    parser.add_argument("out", type=Path, help="a new folder for the run")
    parser.add_argument("--minutes", type=float, default=30, help="of training; default: 30")
    parser.add_argument("--target", default="de", help="the other language; default: de")
    parser.add_argument("--test", default="test_2016_flickr", help="the name of the test set")
    parser.add_argument(
        "--sub-words",
        type=int,
        default=8000,
        help="of both languages together; default: 8000, as many as --time chooses for Multi30k",
    )
    for name, text in switches.items():
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parsed = parser.parse_args()
    if parsed.out.exists():
        sys.exit(f"{parsed.out} exists already: name a new folder.")
    parsed.out.mkdir(parents=True)
    parsed.data, parsed.out = parsed.data.resolve(), parsed.out.resolve()
    return parsed


def lines(data: Path, name: str, language: str) -> list[str]:
    """The lines of a file; only a line feed ends a line, so that both languages keep in step."""
    return (data / f"{name}.{language}").read_text(encoding="utf-8").removesuffix("\n").split("\n")


def learn_sub_words(options: argparse.Namespace) -> Path:
    """Learn sub-words from both languages, and return the path of SentencePiece's model."""
    languages = SOURCE, options.target
    sentencepiece.SentencePieceTrainer.train(
        input=[str(options.data / f"{TRAIN}.{language}") for language in languages],
        model_prefix=str(options.out / "sub-words"),
        vocab_size=options.sub_words,
        character_coverage=1.0,
        minloglevel=1,
    )
    return options.out / "sub-words.model"


def symbols(model: Path) -> list[str]:
    """The sub-words in the model's order, without its own <unk>, <s> and </s>."""
    learned = sentencepiece.SentencePieceProcessor(model_file=str(model))
    return [learned.id_to_piece(i) for i in range(3, learned.vocab_size())]
