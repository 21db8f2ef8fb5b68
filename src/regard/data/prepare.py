"""§5.1 From text to training data: clean, hold out, learn the sub-words, encode.

A corpus of any size goes through in bounded memory, by reading the aligned files three times:

    survey    every line is checked, so that a bad file is refused before any work is done
    learn     an evenly spread sample teaches the tokenizer
    encode    block by block, pairs are judged, encoded and appended to memory-mapped arrays

The directory appears under its name when it is complete, or not at all.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Event

from regard.data.aligned import AlignedText, Pair, Progress, Survey, survey
from regard.data.atomic import whole_or_nothing
from regard.data.pairs import FILES, FORMAT, SideWriter
from regard.errors import DataError
from regard.recipe import DataRecipe, Recipe
from regard.text.cleaning import Verdict, is_empty, judge_length, judge_text
from regard.text.files import checksum
from regard.text.tokenizer import Tokenizer

LEARNT_PAIRS, LEARNT_CHARACTERS = 1_000_000, 200_000_000
"""The tokenizer learns from at most so many pairs and characters, spread evenly over the corpus."""
_BLOCK_PAIRS, _BLOCK_CHARACTERS = 10_000, 4_000_000


@dataclass(frozen=True)
class Counts:
    """What became of the pairs of a split: `read` is the sum of those kept and those dropped."""

    read: int
    kept: int
    empty: int
    too_long: int
    ratio: int
    duplicates: int
    held_out: int
    """Set aside for validation, copies elsewhere in the corpus included."""
    source_tokens: int
    """Ids of the kept sources, </s> included."""
    target_tokens: int
    """Ids of the kept targets, </s> included."""


@dataclass(frozen=True)
class Report:
    """What `prepare` did."""

    train: Counts
    valid: Counts
    vocabulary: int
    """Entries of the tokenizer."""
    fingerprint: str
    """The tokenizer's fingerprint."""


def prepare(
    sources: Sequence[Path],
    targets: Sequence[Path],
    out: Path,
    recipe: Recipe,
    *,
    valid_sources: Sequence[Path] = (),
    valid_targets: Sequence[Path] = (),
    tokenizer: Path | None = None,
    progress: Callable[[Progress], object] = lambda _: None,
) -> Report:
    """Write `out`, a directory of prepared data, from aligned text files.

    Without validation files, `held_out` pairs of the corpus (a tenth of it at most, and none that
    is too long) are drawn with the recipe's seed; neither they nor copies of them are trained on.
    Validation files lose only pairs with an empty side. Without `tokenizer` one is learned.
    Earlier prepared data in `out` is replaced.

    Raises DataError for files that cannot be used, a corpus that leaves nothing, and an `out` that
    cannot be written or holds something else; RecipeError or ModelError for the tokenizer.
    """
    text = AlignedText(sources, targets, progress)
    if not text.files:
        raise DataError("nothing to prepare: give at least one source and one target file")
    valid_text = AlignedText(valid_sources, valid_targets)
    with whole_or_nothing(out) as folder:
        known = None if tokenizer is None else Tokenizer.load(tokenizer)
        found = survey(text, recipe, hold_out=not valid_text.files)
        empty = _write_valid_text(folder, valid_text.pairs("survey")) if valid_text.files else 0
        vocabulary = known or _learn(text, found, recipe)
        vocabulary.save(folder / "tokenizer.json")
        held_out = _not_too_long(found.held_out, vocabulary, recipe.data)
        if not valid_text.files:
            _write_valid_text(folder, held_out)
        valid = _encode_valid(folder, vocabulary, empty)
        train = _encode_train(folder, vocabulary, text, found, set(held_out), recipe.data)
        _refuse_nothing_left(train, valid, text, valid_text)
        report = Report(train, valid, vocabulary.size, vocabulary.fingerprint)
        _write_manifest(folder, recipe, report, text, valid_text)
    return report


def _learn(text: AlignedText, found: Survey, recipe: Recipe) -> Tokenizer:
    clean, held_out = found.clean, set(found.held_out)
    sample = min(clean, LEARNT_PAIRS, clean * LEARNT_CHARACTERS // max(1, found.characters))
    interrupted = Event()

    def lines() -> Iterator[str]:
        number = 0
        for pair in text.pairs("learn"):
            if interrupted.is_set():
                raise KeyboardInterrupt
            if judge_text(*pair, recipe.data) is Verdict.KEPT:
                number += 1
                chosen = number * sample // clean > (number - 1) * sample // clean
                if chosen and pair not in held_out:
                    yield from pair

    # The library does not notice an interrupt, so it works while this thread waits for one.
    with ThreadPoolExecutor(1) as worker:
        learning = worker.submit(
            Tokenizer.learn, lines(), recipe.tokenizer.kind, recipe.tokenizer.vocabulary
        )
        try:
            return learning.result()
        finally:
            interrupted.set()


def _not_too_long(pairs: list[Pair], tokenizer: Tokenizer, rules: DataRecipe) -> list[Pair]:
    sides = [tokenizer.encode([pair[side] for pair in pairs]) for side in (0, 1)]
    return [
        pair
        for pair, source, target in zip(pairs, *sides, strict=True)
        if judge_length(len(source), len(target), rules) is Verdict.KEPT
    ]


def _encode_train(
    folder: Path,
    tokenizer: Tokenizer,
    text: AlignedText,
    found: Survey,
    held_out: set[Pair],
    rules: DataRecipe,
) -> Counts:
    def judge(pair: Pair) -> Verdict:
        verdict = judge_text(*pair, rules)
        if verdict is not Verdict.KEPT:
            return verdict
        if pair in held_out:
            return Verdict.HELD_OUT
        if found.repeats is not None and found.repeats.again(pair):
            return Verdict.DUPLICATE
        return Verdict.KEPT

    def judge_ids(source: list[int], target: list[int]) -> Verdict:
        return judge_length(len(source), len(target), rules)

    counts = _encode(folder / "train", tokenizer, text.pairs("encode"), judge, judge_ids)
    if counts.read != found.pairs:
        raise DataError(
            f"had {found.pairs} pairs when it was first read, and now has {counts.read}: do not "
            "change the text while it is prepared",
            text.files[0][0],
        )
    return counts


def _encode_valid(folder: Path, tokenizer: Tokenizer, empty: int) -> Counts:
    """Encode what `_write_valid_text` wrote, so that ids and text are of the same lines."""
    text = AlignedText([folder / "valid.source.txt"], [folder / "valid.target.txt"])
    counts = _encode(folder / "valid", tokenizer, text.pairs("encode"))
    return replace(counts, read=counts.read + empty, empty=empty)


def _write_valid_text(folder: Path, pairs: Iterable[Pair]) -> int:
    """Write the pairs that have two sides; returns how many have not."""
    empty = 0
    with (
        (folder / "valid.source.txt").open("w", encoding="utf-8", newline="\n") as sources,
        (folder / "valid.target.txt").open("w", encoding="utf-8", newline="\n") as targets,
    ):
        for source, target in pairs:
            if is_empty(source, target):
                empty += 1
            else:
                sources.write(source + "\n")
                targets.write(target + "\n")
        for file in (sources, targets):
            file.flush()
            os.fsync(file.fileno())
    return empty


def _encode(
    stem: Path,
    tokenizer: Tokenizer,
    pairs: Iterable[Pair],
    judge: Callable[[Pair], Verdict] = lambda _: Verdict.KEPT,
    judge_ids: Callable[[list[int], list[int]], Verdict] = lambda *_: Verdict.KEPT,
) -> Counts:
    """Append the pairs that both judges keep to the arrays of the split `stem`."""
    tally: Counter[Verdict] = Counter()
    with (
        closing(SideWriter(stem.with_name(f"{stem.name}.source"), tokenizer.size)) as sources,
        closing(SideWriter(stem.with_name(f"{stem.name}.target"), tokenizer.size)) as targets,
    ):
        for block in _blocks(pairs):
            judged = [(judge(pair), pair) for pair in block]
            tally.update(verdict for verdict, _ in judged if verdict is not Verdict.KEPT)
            clean = [pair for verdict, pair in judged if verdict is Verdict.KEPT]
            encoded = zip(
                tokenizer.encode([source for source, _ in clean]),
                tokenizer.encode([target for _, target in clean]),
                strict=True,
            )
            weighed = [(judge_ids(*ids), ids) for ids in encoded]
            tally.update(verdict for verdict, _ in weighed)
            kept = [ids for verdict, ids in weighed if verdict is Verdict.KEPT]
            sources.append([source for source, _ in kept])
            targets.append([target for _, target in kept])
    outcome = {verdict.value: tally[verdict] for verdict in Verdict}
    return Counts(
        tally.total(), **outcome, source_tokens=sources.tokens, target_tokens=targets.tokens
    )


def _blocks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    block: list[Pair] = []
    characters = 0
    for pair in pairs:
        block.append(pair)
        characters += len(pair[0]) + len(pair[1])
        if len(block) == _BLOCK_PAIRS or characters > _BLOCK_CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def _refuse_nothing_left(
    train: Counts, valid: Counts, text: AlignedText, valid_text: AlignedText
) -> None:
    for counts, use, files in (
        (valid, "validate", valid_text.files or text.files),
        (train, "train", text.files),
    ):
        if not counts.kept:
            fates = {verdict.value: getattr(counts, verdict.value) for verdict in Verdict}
            dropped = ", ".join(f"{n} {fate.replace('_', ' ')}" for fate, n in fates.items() if n)
            raise DataError(
                f"no pair is left to {use} on ({counts.read} read: {dropped or 'all too long'}): "
                "give more text, or loosen data.max_length and data.max_ratio",
                files[0][0],
            )


def _write_manifest(
    folder: Path, recipe: Recipe, report: Report, text: AlignedText, valid_text: AlignedText
) -> None:
    inputs = {
        f"{split}.{side}": [_record(sides[place]) for sides in given.files]
        for split, given in (("train", text), ("valid", valid_text))
        for place, side in enumerate(("source", "target"))
    }
    manifest = {
        "format": FORMAT,
        "tokenizer": {"fingerprint": report.fingerprint, "size": report.vocabulary},
        "counts": {"train": asdict(report.train), "valid": asdict(report.valid)},
        "recipe": recipe.model_dump(include={"tokenizer", "data"}),
        "seed": recipe.training.seed,
        "inputs": inputs,
        "files": {name: _record(folder / name) for name in sorted(FILES - {"manifest.json"})},
    }
    with (folder / "manifest.json").open("w", encoding="utf-8") as file:
        file.write(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _record(path: Path) -> dict[str, str | int]:
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": checksum(path)}
