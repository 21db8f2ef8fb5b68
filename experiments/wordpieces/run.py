"""Compare word pieces that are learned by likelihood, by gain per occurrence, and by frequency.

    python experiments/wordpieces/run.py $REGARD_DATA/europarl-en-fr --vocabulary 32000

The folder has train.500k.{en,fr}.xz and dev.{en,fr}. Pieces are learned from all training pairs by
joining pairs of pieces: those that raise the likelihood of the text most, those whose joining gains
most for each occurrence, or the most frequent. The pieces are then counted in the development set.
With --train STEPS, a small model is trained with each vocabulary for that many steps on the first
100,000 pairs. The script writes result.json beside this file, or the file --out.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer as Library
from tokenizers import models, normalizers, pre_tokenizers, trainers

import regard
from regard.files.lines import read_lines
from regard.run.journal import read_journal
from regard.text.tokenizer import BYTE_ALPHABET, CONTINUED, SPECIAL, Tokenizer
from regard.text.wordpieces import Counts, Learner
from regard.text.words import count_words

KNOWN = [*SPECIAL, *(CONTINUED + byte for byte in BYTE_ALPHABET), *BYTE_ALPHABET]
LEAST = 100
"""The gain per occurrence joins only pairs that occur this often; without it, rare pairs win."""
SMALL = {
    "model.layers": 2, "model.d_model": 128, "model.d_ff": 512, "model.heads": 4,
    "data.source_tokens": 2048, "data.target_tokens": 2048, "data.row_length": 128,
    "data.max_length": 128, "training.warmup_steps": 200, "training.validate_sentences": 0,
    "training.save_minutes": 0.0, "training.average": 1,
}  # fmt: skip
TRAINED = 100_000


def per_occurrence(of: Counts) -> NDArray[np.float64]:
    """The gain per occurrence, c(ab) / (c(a) c(b)); -inf for pairs that occur too rarely."""
    return np.where(of.pair >= LEAST, of.pair / (of.left * of.right), -np.inf)


def lines_of(folder: Path, split: str) -> Iterator[str]:
    for language in ("en", "fr"):
        yield from read_lines(folder / f"{split}.{language}{'.xz' * (split != 'dev')}")


def by_frequency(lines: Iterator[str], size: int) -> list[str]:
    """The pieces of the tokenizers library's trainer, which joins the most frequent pair."""
    library = Library(models.WordPiece(continuing_subword_prefix=CONTINUED))
    library.normalizer = normalizers.Prepend(" ")
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=size, min_frequency=2, special_tokens=KNOWN[: len(SPECIAL) + 256],
        initial_alphabet=list(BYTE_ALPHABET), show_progress=False,
        continuing_subword_prefix=CONTINUED,
    )  # fmt: skip
    library.train_from_iterator(lines, trainer)
    entries = library.get_vocab(with_added_tokens=False)
    return sorted(entries, key=entries.__getitem__)


def tokenizer_of(pieces: list[str], folder: Path) -> Tokenizer:
    """A tokenizer with this vocabulary; its file is written to the folder."""
    Tokenizer.learn([], "wordpiece", len(KNOWN)).save(folder / "tokenizer.json")
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    content["model"]["vocab"] = {piece: i for i, piece in enumerate(pieces)}
    (folder / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    return Tokenizer.load(folder / "tokenizer.json")


def measured(tokenizer: Tokenizer, dev: list[str]) -> dict[str, float]:
    """Numbers of pieces in the development set, and a unigram model's nats per character."""
    ids = np.concatenate(tokenizer.encode_arrays(dev))
    counts = np.bincount(ids)[np.unique(ids)]
    nats = -float((counts * np.log(counts / counts.sum())).sum())
    return {
        "pieces": len(ids),
        "pieces_per_word": round(len(ids) / sum(len(line.split()) for line in dev), 4),
        "different_pieces": len(counts),
        "nats_per_character": round(nats / sum(map(len, dev)), 4),
    }


def trained(folder: Path, tokenizer: Path, steps: int) -> dict[str, float]:
    """The loss of a small model on the development set, in nats per character of the target."""
    with TemporaryDirectory() as scratch:
        files = []
        for language in ("en", "fr"):
            files.append(Path(scratch, f"train.{language}"))
            some = islice(read_lines(folder / f"train.500k.{language}.xz"), TRAINED)
            files[-1].write_text("".join(f"{line}\n" for line in some), "utf-8")
        source, target = files
        out = Path(scratch, "run")
        changes = SMALL | {"training.steps": steps, "training.validate_every": steps}
        regard.train(
            source=source, target=target, valid_source=folder / "dev.en",
            valid_target=folder / "dev.fr", tokenizer=tokenizer, out=out, recipe="base",
            changes=changes,
        )  # fmt: skip
        last = [r for r in read_journal(out / "journal.jsonl") if r["event"] == "validation"][-1]
        dev = list(read_lines(folder / "dev.fr"))
        ids = sum(len(row) + 1 for row in Tokenizer.load(tokenizer).encode_arrays(dev))
        nats = last["loss"] * ids / (sum(map(len, dev)) + len(dev))
        return {
            "steps": steps,
            "perplexity_per_piece": round(last["perplexity"], 2),
            "nats_per_character_trained": round(nats, 4),
            "perplexity_per_character": round(math.exp(nats), 4),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--train", type=int, default=0, metavar="STEPS")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("result.json"))
    arguments = parser.parse_args()
    folder, size = arguments.folder, arguments.vocabulary
    words = count_words(lines_of(folder, "train.500k"), 100)
    dev = list(lines_of(folder, "dev"))
    found: dict[str, list[str]] = {}
    result: dict[str, Any] = {"vocabulary": size, "words": len(words)}
    for name, gain in (("likelihood", None), ("per occurrence", per_occurrence)):
        began = time.process_time()
        learner = Learner(words, KNOWN, CONTINUED, gain)
        while len(learner.names) < size and learner.join_best():
            pass
        found[name] = learner.names
        result[name] = {"seconds_of_processor": round(time.process_time() - began, 1)}
    began = time.process_time()
    found["frequency"] = by_frequency(lines_of(folder, "train.500k"), size)
    result["frequency"] = {"seconds_of_processor": round(time.process_time() - began, 1)}
    for name, pieces in found.items():
        with TemporaryDirectory() as scratch:
            tokenizer = tokenizer_of(pieces, Path(scratch))
            shared = len({*pieces} & {*found["likelihood"]})
            result[name] |= {"entries": len(pieces), "shared_with_likelihood": shared}
            result[name] |= measured(tokenizer, dev)
            if arguments.train:
                path = Path(scratch, "tokenizer.json")
                result[name] |= trained(folder, path, arguments.train)
        print(name, result[name], flush=True)  # noqa: T201
    arguments.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
