"""Data diversification: a model also learns from two other models' translations of its text.

One of the two translates in the same direction as the model, the other in the opposite direction.
The method is that of Nguyen et al. (2020), "Data Diversification: A Simple Strategy For Neural
Machine Translation", with one model in each direction, and one round.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

from regard.errors import RegardError
from regard.files.lines import read_lines, text_of_lines
from regard.files.locks import locked
from regard.files.whole import refuse_filled, write_file
from regard.inputs import TrainingFiles
from regard.recipe import Recipe, assigned_field
from regard.run.beginning import begun, is_of_members
from regard.start import MINUTES, Start
from regard.text.opening import open_tokenizer

SHARE_OF_EACH = 1 / 6
"""Each of the two models that translate the text is trained for this share of the whole time."""
LEAST_OF_TIME = 1 / 3
"""The model that learns from the translations is trained for at least this share of the whole time,
however long translating takes."""

_LOCK = ".diversify.lock"
"""The file in OUT (--out) that a diversified run locks; the file is not removed afterwards."""
Translate = Callable[[Path, Path, Path], object]
"""A function that is given a model's directory, a file to translate, and the file to write."""


class _Places:
    """The files of a diversified run in the directory OUT."""

    def __init__(self, out: Path):
        self.forward, self.backward = out / "forward", out / "backward"
        """The run directories of the two models that translate the text: the forward model
        translates the source into the target language, and the backward model the target into the
        source language."""
        self.text = out / "text"
        self.source, self.target = self.text / "source.txt", self.text / "target.txt"
        """The text to learn from."""
        self.translated, self.back = self.text / "forward.txt", self.text / "backward.txt"
        """Translations: of `source` by the forward model, of `target` by the backward model."""
        self.trained = self.text / "trained"
        """An empty file; it is written when both the forward and the backward model are trained."""
        self.seconds = self.text / "seconds.json"
        """A file with the number of seconds that translating has taken so far."""
        self.tokenizer = self.forward / "tokenizer.json"
        data = self.forward / "data"
        self.valid = data / "valid.source.txt", data / "valid.target.txt"

    def validated(self) -> set[tuple[str, str]]:
        """The pairs that all three runs are validated on."""
        return set(_pairs(self.valid[:1], self.valid[1:]))


def refuse_diversified(out: Path) -> None:
    """Raise RegardError if --diversify began `out`/forward, and the run in `out` has not begun."""
    if (out / _LOCK).exists() and not begun(out) and begun(_Places(out).forward):
        raise RegardError(
            f"{out}: was begun with --diversify: give it again, or choose another --out"
        )


def diversified(start: Start, translate: Translate) -> Iterator[Start]:
    """Yield the starts of three runs: in OUT/forward, in OUT/backward, and in OUT (`start.out`).

    Each run must be trained to its end before the next start is asked for. Each of the first two
    runs takes SHARE_OF_EACH of the time limit that is given when the first run begins, or of
    MINUTES (60) if neither a limit nor a recipe is given; a limit that is given later does not
    change this. With a recipe and no limit, each run makes all steps of the recipe. Then the two
    models translate the text, and the run in OUT has the rest of the time, but at least the share
    LEAST_OF_TIME of the whole time. If the first two runs are trained already, only the start of
    the run in OUT is yielded.

    Raises RegardError if the text is missing; if an option does not fit --diversify; if the runs
    were begun with other files or another tokenizer; if another process is at work in OUT; if OUT
    was begun without --diversify or with --seeds; if OUT cannot be written; or if OUT/text has
    files before the first run begins. Also raises the errors of `translate`.
    """
    _refuse_unfit(start)
    start = replace(start, assignments=("data.share=1", *start.assignments))
    with locked(start.out / _LOCK, wait=False) as alone:
        if not alone:
            raise RegardError(f"{start.out}: another process is at work here: wait for it")
        its = _Places(start.out)
        own = begun(start.out)
        if is_of_members(start.out):
            raise RegardError(f"{start.out}: was begun with --seeds: choose another --out")
        if own and not its.back.exists():  # the run in OUT begins last
            raise RegardError(
                f"{start.out}: was begun without --diversify: choose another --out, or leave it out"
            )
        yield from _three(start, its, own, translate)


def _three(start: Start, its: _Places, own: Recipe | None, translate: Translate) -> Iterator[Start]:
    """Yield the starts that `diversified` yields.

    `own` is the recipe that the run in OUT was begun with, or None if it has not begun.
    """
    first = begun(its.forward)
    if first is None:
        refuse_filled(its.text)
        whole = start.limit or (0.0 if start.recipe else MINUTES)
        share = whole * SHARE_OF_EACH
    else:
        _refuse_other(start, its)
        share = first.training.minutes
        whole = start.limit or (0.0 if own else share / SHARE_OF_EACH)
    if not its.trained.exists():
        # The run in OUT uses this vocabulary, too, and has more time, so its model may be larger.
        yield replace(start, out=its.forward, minutes=share or None, whole_vocabulary=True)
        start.files.refuse_other_than(its.forward / "data", start.out)  # files may have changed
        _keep_text(start.files, its)
        yield _reverse(start, its, share)
        write_file(its.trained, "")
    for model, text, out in (
        (its.forward, its.source, its.translated),
        (its.backward, its.target, its.back),
    ):
        if not out.exists():
            with _timed(its.seconds):
                translate(model, text, out)
    if own is None:
        _leave_out_validated(its)
    yield _last(start, its, whole, 2 * share)


def _refuse_unfit(start: Start) -> None:
    """Raise RegardError if the text is missing, or if an option does not fit --diversify."""
    if start.is_for_trees:
        raise RegardError("--diversify is for translators: leave out --trees and --task parse")
    if start.data or start.start_from or start.files.mix:
        raise RegardError("--diversify begins with one text: leave out --data, --from and --mix")
    if "training.minutes" in map(assigned_field, start.assignments):
        raise RegardError("--diversify divides the time: give --time, not --set training.minutes")
    if "data.share" in map(assigned_field, start.assignments):
        raise RegardError("--diversify uses the whole text: leave out --set data.share")
    if not start.files.can_be_prepared:
        raise RegardError(f"{start.out}: --diversify needs the text: give --source and --target")


def _refuse_other(start: Start, its: _Places) -> None:
    """Raise RegardError if `start` has other files or another tokenizer than the forward model.

    Before the forward model is trained, nothing is compared here: the run of the forward model
    checks the files and the tokenizer itself.
    """
    if its.source.exists():  # the forward model is trained
        start.files.refuse_other_than(its.forward / "data", start.out)
        given = start.tokenizer and open_tokenizer(start.tokenizer).fingerprint
        if given and given != open_tokenizer(its.tokenizer).fingerprint:
            raise RegardError(
                f"{start.tokenizer}: {start.out} was begun with another --tokenizer: leave it out"
            )


def _reverse(start: Start, its: _Places, share: float) -> Start:
    """The start of the backward model, which learns a tokenizer of its own.

    `share` is the time of its run in minutes; 0 means no limit.
    """
    files = TrainingFiles([its.target], [its.source], [its.valid[1]], [its.valid[0]])
    return replace(start, out=its.backward, files=files, tokenizer=None, minutes=share or None)


def _last(start: Start, its: _Places, whole: float, teaching: float) -> Start:
    """The start of the run in OUT, whose model uses the tokenizer of the forward model.

    `whole` is the time of all three models, in minutes, and `teaching` the time of the forward and
    the backward model together. If `whole` is 0, only a limit in the run's recipe applies.
    """
    seconds = json.loads(its.seconds.read_text()) if its.seconds.exists() else 0.0
    files = TrainingFiles(
        [its.source, its.source, its.back],
        [its.target, its.translated, its.target],
        its.valid[:1],
        its.valid[1:],
    )
    asked = [a for a in start.assignments if not assigned_field(a).startswith("tokenizer.")]
    minutes = max(whole * LEAST_OF_TIME, whole - teaching - seconds / 60) or None
    return replace(start, files=files, tokenizer=its.tokenizer, assignments=asked, minutes=minutes)


@contextmanager
def _timed(file: Path) -> Iterator[None]:
    """A context that measures the seconds of its block and adds them to the number in `file`."""
    before, began = json.loads(file.read_text()) if file.exists() else 0.0, time.monotonic()
    try:
        yield
    finally:
        write_file(file, json.dumps(before + time.monotonic() - began))


def _keep_text(files: TrainingFiles, its: _Places) -> None:
    """Write the pairs of `files`, except those held out for validation, to two files."""
    held_out = set() if files.valid_source else its.validated()
    pairs = [pair for pair in _pairs(files.source, files.target) if pair not in held_out]
    its.text.mkdir(exist_ok=True)
    for path, side in ((its.source, 0), (its.target, 1)):
        write_file(path, text_of_lines(pair[side] for pair in pairs))


def _leave_out_validated(its: _Places) -> None:
    """Empty a translation's line if the translation and its original are a validation pair.

    Later, the preparation of data leaves out pairs in which one line is empty.
    """
    validated = its.validated()
    for made, pairs, side in (
        (its.translated, _pairs([its.source], [its.translated]), 1),
        (its.back, _pairs([its.back], [its.target]), 0),
    ):
        kept = ("" if pair in validated else pair[side] for pair in pairs)
        write_file(made, text_of_lines(kept))


def _pairs(sources: Iterable[Path], targets: Iterable[Path]) -> list[tuple[str, str]]:
    texts = (chain.from_iterable(map(read_lines, paths)) for paths in (sources, targets))
    return list(zip(*texts, strict=True))
