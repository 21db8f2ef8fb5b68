"""A kind of part: a training of a model by `regard.train`, and measurements of this model."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.api import prepare, train
from regard.claims.parts import Size
from regard.claims.recipes import ROOM, SHORT_PIECES, VOCABULARY, training_recipe
from regard.corpus import examples, write_corpus
from regard.data.pairs import Pairs
from regard.errors import DataError, Diverged
from regard.files.locks import locked
from regard.files.whole import refuse_filled, write_file
from regard.loss import perplexity
from regard.measure.validation import loss_and_accuracy
from regard.parts.kept import Measured
from regard.parts.settings import settings_of
from regard.run.journal import read_journal
from regard.run.model_directory import Model, open_model
from regard.score.bleu import bleu
from regard.translation import Translator

VALID_PAIRS = 500
_TRAIN, _VALID, _TEST = 11, 12, 13
"""Seeds of the built-in corpus: for the training text, the validation text and the test text."""


@dataclass(frozen=True)
class Trained:
    """A part that trains a model by the recipe with the name `name` in `claims.recipes`.

    `run` measures these numbers. `bleu` is the BLEU of `size.tested` unseen sentences. `short` is
    the BLEU of the short ones, and `long` is the BLEU of the others. A sentence is short if it and
    its reference have at most SHORT_PIECES pieces each (sub-words, </s> included). `perplexity` and
    `accuracy` (percent) tell how well the model predicts the next piece in the validation set,
    given the right pieces before it. `train_perplexity` is the perplexity of the training batches
    in the last five logged steps. A training that diverged gets the numbers of a model that
    guesses: BLEU and accuracy are 0, and both perplexities are the size of the vocabulary.
    """

    name: str

    def settings(self, size: Size) -> str:
        """The fields of the recipe that differ from `Recipe()`, and the size, as text.

        The text is made with seed 1 and 1 step, so it is the same for every seed. The size has the
        real number of steps.
        """
        return f"{settings_of(training_recipe(self.name, 1, 1))} {size}"

    def run(self, seed: int, out: Path, size: Size) -> Measured:
        """Train the model in a run directory under `out`; return the model's numbers, by name.

        `prepare_corpora` must have written the data into `out`. Errors of training are raised,
        except `Diverged`.
        """
        recipe = training_recipe(self.name, seed, size.steps)
        run, data = out / "runs" / f"{self.name}-{seed}", out / f"data-{recipe.data.max_length}"
        try:
            train(out=run, data=data, recipe=recipe)
        except Diverged:
            return _diverged()
        return measured(run, data, size.tested)


def prepare_corpora(out: Path, size: Size) -> None:
    """Write the built-in corpus in `out`; prepare it twice, with and without long sentences.

    The data for recipes with a `data.max_length` of N is in `out`/data-N. Files that an earlier
    call wrote are kept. If several processes call this function, one of them writes at a time.
    Raises DataError if an earlier call for `out` had another size, or if the folder `out`/corpus
    has files that no earlier call wrote. Raises RegardError if a file cannot be written.
    """
    with locked(out / ".prepare.lock"):
        _prepare(out, size)


def _prepare(out: Path, size: Size) -> None:
    written = out / "size.json"
    if written.exists() and written.read_text("utf-8") != json.dumps(size._asdict()):
        raise DataError(
            f"was begun with another size, {written.read_text('utf-8')}: choose another --out", out
        )
    corpus = out / "corpus"
    if not written.exists():
        refuse_filled(corpus)
    write_file(written, json.dumps(size._asdict()))
    for name, seed, count in (("train", _TRAIN, size.pairs), ("valid", _VALID, VALID_PAIRS)):
        if not (corpus / f"{name}.de").exists():
            write_corpus(corpus / name, seed, count)
    for longest in (ROOM, SHORT_PIECES):
        folder = out / f"data-{longest}"
        if not folder.exists():
            recipe = training_recipe("base" if longest == ROOM else "short", 1, size.steps)
            prepare(
                out=folder,
                source=corpus / "train.en",
                target=corpus / "train.de",
                valid_source=corpus / "valid.en",
                valid_target=corpus / "valid.de",
                tokenizer=None if longest == ROOM else out / f"data-{ROOM}/tokenizer.json",
                recipe=recipe,
            )


def measured(run: Path, data: Path, tested: int) -> Measured:
    """The numbers of a trained model, as `Trained` lists them.

    `run` and `data` are the directories of the training. BLEU is that of `tested` unseen sentences.
    """
    model = open_model(run)
    network, recipe = model.network, model.recipe
    pairs = Pairs.open(data, "valid")
    last = [r for r in read_journal(run / "journal.jsonl") if r["event"] == "step"][-5:]
    loss, accuracy = loss_and_accuracy(network, pairs, recipe)
    train_loss = sum(r["plain_loss"] for r in last) / len(last)
    return {
        "perplexity": perplexity(loss, 1),
        "accuracy": accuracy,
        "train_perplexity": math.exp(train_loss),
        **_translated(model, tested),
    }


def _translated(model: Model, tested: int) -> Measured:
    """BLEU of the first `tested` unseen sentences: of all, of the short and of the long ones.

    A sentence is short if it and its reference have at most SHORT_PIECES pieces each, </s>
    included. Long sentences are translated whole, not in parts.
    """
    unseen = list(islice(examples(_TEST), tested))
    source, target = [one.source for one in unseen], [one.target for one in unseen]
    network, tokenizer = model.network, model.tokenizer
    translator = Translator(network, tokenizer, model.recipe.search, network.longest)
    outputs = translator.translate(source)
    encoded = zip(tokenizer.encode(source), tokenizer.encode(target, "target"), strict=True)
    lengths = [1 + max(map(len, pair)) for pair in encoded]
    chosen = {
        "bleu": range(tested),
        "short": [i for i in range(tested) if lengths[i] <= SHORT_PIECES],
        "long": [i for i in range(tested) if lengths[i] > SHORT_PIECES],
    }
    return {
        name: bleu([outputs[i] for i in places], [[target[i] for i in places]])
        for name, places in chosen.items()
    }


def _diverged() -> Measured:
    guess = float(VOCABULARY)
    return {
        "bleu": 0.0, "short": 0.0, "long": 0.0, "accuracy": 0.0,
        "perplexity": guess, "train_perplexity": guess,
    }  # fmt: skip
