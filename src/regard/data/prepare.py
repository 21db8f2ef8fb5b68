"""§5.1 From text to training data: drop bad pairs, draw validation pairs, learn sub-words, encode.

The lines of the aligned files are read several times, so that a corpus of any size needs little
memory (validation files are held in memory):

    draw      only if data.share is below 1: drawn pairs are copied; the other stages read the copy
    survey    every line is checked, duplicates are found, and validation pairs are drawn
    learn     the tokenizer is learned from a random sample, unless a tokenizer is given
    encode    block by block, pairs are judged, encoded and appended to arrays on disk

This process reads and writes; worker processes do the work on each block, and their results come
back in order. So equal text and an equal recipe give equal bytes for any number of workers. The
output directory gets its name only when it is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from regard.amounts import count_of
from regard.data.aligned import AlignedText, Progress, TextPair
from regard.data.drawing import draw
from regard.data.encoding import EncodeAll, EncodeForTraining, SplitCounts, encode, encoded
from regard.data.learning import learn, sampled
from regard.data.pairs import DATA_FORMAT, FILES, SIDES, is_replaceable
from regard.data.survey import survey
from regard.errors import DataError
from regard.files.lines import text_checksum, text_of_lines
from regard.files.manifest import MANIFEST, write_manifest
from regard.files.replacing import whole_or_nothing
from regard.machine.cores import usable_cores
from regard.machine.workers import Workers
from regard.recipe import DataRecipe, Recipe
from regard.text.cleaning import Verdict, judge_length, judge_text
from regard.text.opening import open_tokenizer, tokenizer_files
from regard.text.protocol import AnyTokenizer

BYTES_PER_WORKER = 2 * 2**20
"""Each worker has at least this many bytes of stored text to process, because with less text a
worker would take longer to start than to work."""
REMARKED = 0.01
"""A report has a remark on training pairs that are also in the validation files, if their number is
at least this fraction of the number of validation pairs."""


@dataclass(frozen=True)
class Report:
    """The outcome of preparing data."""

    train: SplitCounts
    valid: SplitCounts
    vocabulary: int
    """The size of the target's vocabulary, which in most cases is also the source's vocabulary."""
    source_vocabulary: int
    """The size of the source's vocabulary."""
    fingerprint: str
    """The checksum of the tokenizer, by which two tokenizers can be compared."""

    @classmethod
    def of(cls, train: SplitCounts, valid: SplitCounts, tokenizer: AnyTokenizer) -> Report:
        """The report on two splits that this tokenizer encoded."""
        sizes = tokenizer.size, tokenizer.source_size
        return cls(train, valid, *sizes, tokenizer.fingerprint)

    def remarks(self, example: str = "pair") -> Iterator[str]:
        """Sentences for the user: on dropped pairs, and on training pairs in validation files.

        `example` is the word for an example: "pair", or "tree" for a parser. The first sentence
        is yielded if dropped pairs are at least the fraction `encoding.MANY` of drawn pairs. The
        second is yielded if the number of training pairs that are also in validation files is at
        least REMARKED times the number of validation pairs that were kept.
        """
        if dropped := self.train.remark(example):
            yield dropped
        if self.train.validated < REMARKED * max(1, self.valid.kept):
            return
        both = count_of(self.train.validated, f"training {example}")
        yield (
            f"{both} {'is' if self.train.validated == 1 else 'are'} also in the validation files, "
            f"which have {count_of(self.valid.kept, example)}: the model will look better there "
            "than on new text"
        )


def prepare_text(
    sources: Sequence[Path],
    targets: Sequence[Path],
    out: Path,
    recipe: Recipe,
    *,
    valid_sources: Sequence[Path] = (),
    valid_targets: Sequence[Path] = (),
    mix: Sequence[int] = (),
    tokenizer: Path | None = None,
    workers: int | None = None,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Report:
    """Write `out`, a directory of prepared data, from aligned text files.

    Only the pairs that data.share draws are used (see `draw`). Without validation files, some of
    these are held out for validation, drawn with the recipe's seed: as many different clean pairs
    (see `judge_text`) as data.held_out says, but at most a tenth of all such pairs. Held-out pairs
    that are too long are dropped. The held-out pairs, and all pairs equal to one of them, are not
    trained on. From validation files, only pairs with an empty side or with extremely many
    characters are dropped; training pairs equal to a validation pair are counted, but kept. `mix`
    tells for each source file how often its pairs are in an epoch (by default once). With `mix`,
    duplicates are dropped within each file only. `tokenizer` is a tokenizer.json or its directory,
    which must have the tokenizer's other files; if None, a tokenizer is learned. Earlier prepared
    data in `out` is replaced. At most `workers` processes do the work, by default one per usable
    core; 0 or 1 means only this process. `progress` is called while the corpus is read.

    Raises DataError if a file cannot be used, too few pairs are left, or `out` cannot be written or
    holds other files; RecipeError for a vocabulary too small to learn; ModelError or MissingExtra
    as `open_tokenizer`; RegardError if `out` is the current directory, or a worker was killed.
    """
    text = AlignedText(sources, targets, progress)
    if not text.files:
        raise DataError("nothing to prepare: give at least one source and one target file")
    valid_text = AlignedText(valid_sources, valid_targets)
    with (
        whole_or_nothing(out, is_replaceable) as folder,
        TemporaryDirectory(dir=folder) as scratch,
        _workers(text, workers) as pool,
    ):
        known = None if tokenizer is None else open_tokenizer(tokenizer)
        digests, hold_out, mixed = Path(scratch, "digests"), not valid_text.files, bool(mix)
        drawn = draw(text, recipe, pool, Path(scratch), progress)
        found = survey(drawn, recipe, pool, hold_out=hold_out, digests=digests, mixed=mixed)
        dropped = _write_valid_text(folder, valid_text.pairs(), recipe.data)  # no pairs if hold_out
        vocabulary = known or learn(drawn, found, recipe, pool, Path(scratch, "sample"))
        vocabulary.save(folder / "tokenizer.json")
        held_out = _not_too_long(found.held_out, vocabulary, recipe.data)
        if hold_out:
            _write_valid_text(folder, held_out, recipe.data)
        valid = _encode_valid(folder, vocabulary, dropped)
        given = () if hold_out else _valid_text(folder).pairs()
        job = EncodeForTraining(vocabulary, recipe.data, held_out, found.repeats, mix, [*given])
        train = encode(folder / "train", drawn, job, _sizes(vocabulary), pool)
        _refuse_nothing_left(train, valid, text, valid_text)
        report = Report.of(train, valid, vocabulary)
        inputs, sample = _inputs(text, valid_text), None if known else sampled(found, recipe)
        complete(folder, recipe, report, inputs, mix=mix, sample=sample)
        _refuse_changed(text, valid_text)
    return report


def _workers(text: AlignedText, most: int | None) -> Workers:
    """Start as many processes as suit the text: at most `most`, or one per usable core if None."""
    useful = min(usable_cores() if most is None else most, text.bytes // BYTES_PER_WORKER)
    return Workers(useful if useful > 1 else 0)


def _inputs(train: AlignedText, valid: AlignedText) -> dict[str, list[Path]]:
    """The source files and the target files of each split, by names such as "train.source"."""
    return {
        f"{split}.{side}": [both[i] for both in text.files]
        for split, text in (("train", train), ("valid", valid))
        for i, side in enumerate(SIDES)
    }


def _not_too_long(
    pairs: list[TextPair], tokenizer: AnyTokenizer, rules: DataRecipe
) -> list[TextPair]:
    return [
        pair
        for pair, (source, target) in zip(pairs, encoded(pairs, tokenizer), strict=True)
        if judge_length(len(source), len(target), rules) is Verdict.KEPT
    ]


def _encode_valid(folder: Path, tokenizer: AnyTokenizer, dropped: Counter[Verdict]) -> SplitCounts:
    """Encode the files that `_write_valid_text` wrote: line i of the text becomes pair i.

    The counts include the pairs that `_write_valid_text` dropped.
    """
    text = _valid_text(folder)
    with Workers(0) as here:
        counts = encode(folder / "valid", text, EncodeAll(tokenizer), _sizes(tokenizer), here)
    each = {verdict.value: count for verdict, count in dropped.items()}
    return replace(counts, read=counts.read + dropped.total(), **each)


def _valid_text(folder: Path) -> AlignedText:
    return AlignedText([folder / "valid.source.txt"], [folder / "valid.target.txt"])


def _sizes(tokenizer: AnyTokenizer) -> tuple[int, int]:
    """The sizes of the source's and the target's vocabulary, in entries."""
    return tokenizer.source_size, tokenizer.size


def _write_valid_text(
    folder: Path, pairs: Iterable[TextPair], rules: DataRecipe
) -> Counter[Verdict]:
    """Write the validation pairs as text; return how many were dropped, and why.

    A pair is dropped if a side is empty. A pair is also dropped if a side has more characters than
    training text may have, because attention over such a long text would not fit the memory.
    """
    dropped: Counter[Verdict] = Counter()
    with (
        (folder / "valid.source.txt").open("w", encoding="utf-8", newline="\n") as sources,
        (folder / "valid.target.txt").open("w", encoding="utf-8", newline="\n") as targets,
    ):
        begun = False
        for source, target in pairs:
            verdict = judge_text(source, target, rules)
            if verdict in (Verdict.EMPTY, Verdict.TOO_LONG):
                dropped[verdict] += 1
                continue
            sources.write(f"{source}\n" if begun else text_of_lines([source]))
            targets.write(f"{target}\n" if begun else text_of_lines([target]))
            begun = True
    return dropped


def _refuse_changed(*texts: AlignedText) -> None:
    for text in texts:
        text.refuse_changed()


def _refuse_nothing_left(
    train: SplitCounts, valid: SplitCounts, text: AlignedText, valid_text: AlignedText
) -> None:
    for counts, use, files in (
        (train, "train", text.files),
        (valid, "validate", valid_text.files or text.files),
    ):
        if not counts.kept:
            fates = {verdict.value: getattr(counts, verdict.value) for verdict in Verdict}
            fates |= {"not_drawn": counts.not_drawn}
            none = "the files are empty" if valid_text.files else "all too long"
            dropped = ", ".join(f"{n} {fate.replace('_', ' ')}" for fate, n in fates.items() if n)
            draw_more = "raise data.share, " * (counts.not_drawn > 0)
            raise DataError(
                f"no pair is left to {use} on ({counts.read} read: {dropped or none}): "
                f"give more text, {draw_more}or loosen data.max_length and data.max_ratio",
                files[0][0],
            )


def complete(
    folder: Path,
    recipe: Recipe,
    report: Report,
    inputs: Mapping[str, Sequence[Path]],
    silver_share: float | None = None,
    mix: Sequence[int] = (),
    sample: float | None = None,
) -> None:
    """Write manifest.json, which completes prepared data.

    `inputs` are the files that the data was made from, by names such as "train.source".
    `silver_share` is the requested fraction of silver trees, which a parser made, among the
    training trees. `mix` tells for each source file how often its pairs are in an epoch; with an
    empty `mix`, once. `sample` is the fraction of the clean pairs, or of the trees, from which the
    tokenizer was learned; None if the tokenizer was given.
    """
    files = FILES | {*tokenizer_files(folder)}
    manifest = {
        "format": DATA_FORMAT,
        "tokenizer": {
            "fingerprint": report.fingerprint,
            "size": report.vocabulary,
            "source_size": report.source_vocabulary,
        },
        "counts": {"train": asdict(report.train), "valid": asdict(report.valid)},
        "recipe": recipe.model_dump(),
        "inputs": {name: [_record(path) for path in paths] for name, paths in inputs.items()},
        "silver_share": silver_share,
        "mix": list(mix),
        "sample": sample,
        "files": {name: _record(folder / name) for name in sorted(files - {MANIFEST})},
    }
    write_manifest(folder, manifest)


def _record(path: Path) -> dict[str, str | int]:
    # `text_checksum` is called first, because its error names a missing file.
    sha256 = text_checksum(path)
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": sha256}
