"""The parsers of Table 4 at each scale, each with its recipe, training trees and test trees."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from regard.corpus import examples, write_treebank
from regard.errors import DataError
from regard.files.whole import write_file
from regard.inputs import TrainingFiles
from regard.paper import WSJ, WSJ_SEMI
from regard.parsing import load, treebank_line
from regard.presets import SMALL_PARSE
from regard.recipe import Recipe
from regard.reproduce.rows import run_of
from regard.reproduce.scales import Scale

_TRAIN, _VALID, _TEST, _RAW = 31, 32, 33, 34
"""Seeds of the built-in corpus, for gold trees, validation, test, and sentences without trees."""


@dataclass(frozen=True)
class ParserRow:
    """A parser of Table 4."""

    name: str
    regime: str
    """The words in the table about the trees that the parser learns from."""
    recipe: Recipe
    files: TrainingFiles
    test: Path
    """The file of the gold trees that the parser is tested on."""
    teacher: str | None = None
    """The name of the row whose parser writes the silver trees (training trees made by a parser);
    None if no silver trees have to be written."""
    beam: int | None = None
    """The size of the beam in the test; None means the size that the recipe gives."""


PLAIN_PARSE = SMALL_PARSE.but(positions="sinusoidal", recombined=0, steps=18_000)
"""The recipe small-parse with sinusoidal positions (§3.5) and more steps, but without recombined
trees (gold trees in which phrases are exchanged)."""
MINI_PARSE = PLAIN_PARSE.but(
    dropout=0.0,
    vocabulary=1500,
    max_length=128,
    row_length=128,
    source_tokens=1024,
    target_tokens=1024,
    steps=1600,
    warmup_steps=400,
    validate_every=1600,
    validate_sentences=50,
    save_every=50,
    keep=5,
    average=5,
    beam=4,
)
"""The recipe for parsers that learn from the built-in trees. One training takes some minutes on one
core."""
GOLD_TREES, SILVER_TREES, TEST_TREES = 2000, 4000, 200
BERKELEY = {"wsj-sample/test": 86.1, "craft/dev": 83.3}
"""For each test set, the F1 of the Berkeley parser, trained on the gold trees that our parser also
learns from. The values cannot be checked: the parser's output and the command that scored it were
not kept (experiments/table4)."""


def parser_rows(scale: Scale, out: Path) -> dict[str, ParserRow]:
    """The parsers of a scale by name; `refuse_without_trees` checks that their trees exist."""
    makers = {"mini": _of_built_in_trees, "paper": _of_the_treebank}
    return {row.name: row for row in makers.get(scale.name, _of_smaller_treebanks)(out)}


def refuse_without_trees(scale: Scale, rows: Iterable[ParserRow]) -> None:
    """Raise DataError if a file of real trees is missing; scale mini uses only built-in trees."""
    if scale.name == "mini":
        return
    for row in rows:
        files = row.files
        for path in (*files.trees, *files.valid_trees, *files.silver, row.test):
            if not path.is_file():
                raise DataError(
                    "Table 4 needs these trees, in the folder that REGARD_DATA names: put them "
                    "there, or choose --scale mini, or the other tables by name",
                    path,
                )


def _of_built_in_trees(out: Path) -> list[ParserRow]:
    folder = out / "trees"
    gold, valid, test = (folder / f"{name}.mrg" for name in ("train", "valid", "test"))
    silver = folder / "silver.mrg"
    alone = TrainingFiles(trees=[gold], valid_trees=[valid])
    both = TrainingFiles(trees=[gold], valid_trees=[valid], silver=[silver])
    semi = f"semi-supervised: these, and {SILVER_TREES:,} trees by the parser above"
    return [
        ParserRow("gold", f"{GOLD_TREES:,} gold trees", MINI_PARSE, alone, test),
        ParserRow("semi", semi, MINI_PARSE, both, test, teacher="gold"),
    ]


def _of_the_treebank(out: Path) -> list[ParserRow]:
    """The paper's parsers, which learn from the Wall Street Journal (WSJ).

    The file train.mrg has sections 2 to 21, dev.mrg has section 22, and test.mrg has section 23.
    The parser wsj-semi also learns from silver.mrg.xz: trees that other parsers made.
    """
    folder = Path(os.environ.get("REGARD_DATA", "."), "wsj")
    gold = TrainingFiles(trees=[folder / "train.mrg"], valid_trees=[folder / "dev.mrg"])
    semi = replace(gold, silver=[folder / "silver.mrg.xz"])
    return [
        ParserRow("wsj", "gold trees of the WSJ", WSJ, gold, folder / "test.mrg"),
        ParserRow("wsj-semi", "semi-supervised: these, and 17 million trees by other parsers",
                  WSJ_SEMI, semi, folder / "test.mrg"),
    ]  # fmt: skip


def _of_smaller_treebanks(out: Path) -> list[ParserRow]:
    named = os.environ.get("REGARD_DATA", ".")
    wsj, craft = Path(named, "wsj-sample"), Path(named, "craft")
    silver = Path(named, "raw-en", "reuters.berkeley.mrg.xz")
    smaller = PLAIN_PARSE.but(
        vocabulary=1000, source_tokens=1024, target_tokens=1024, steps=8000, warmup_steps=600,
        validate_every=500,
    )  # fmt: skip
    larger = PLAIN_PARSE.but(
        d_model=256, d_ff=1024, dropout=0.1, attention_dropout=0.1, vocabulary=4000, steps=9000
    )
    longer = SMALL_PARSE.but(steps=24_000, keep=24, average=24)
    gold = TrainingFiles(trees=[wsj / "train.mrg"], valid_trees=[wsj / "dev.mrg"])
    semi = replace(gold, silver=[silver], silver_share=0.8)
    medical = TrainingFiles(trees=[craft / "train.mrg"], valid_trees=[craft / "dev.mrg"])
    semi_regime = "semi-supervised: these, and trees by the Berkeley parser"
    return [
        ParserRow("wsj", "gold trees of the WSJ sample", smaller, gold, wsj / "test.mrg", beam=21),
        ParserRow("wsj-semi", semi_regime, larger, semi, wsj / "test.mrg", beam=21),
        ParserRow("craft", "gold trees of CRAFT", PLAIN_PARSE, medical, craft / "dev.mrg",
                  beam=21),
        ParserRow("wsj-words", "gold trees of the WSJ sample; small-parse", SMALL_PARSE, gold,
                  wsj / "test.mrg", beam=21),
        ParserRow("craft-words", "gold trees of CRAFT; small-parse, 24,000 steps", longer, medical,
                  craft / "dev.mrg", beam=21),
    ]  # fmt: skip


def make_trees(row: ParserRow, out: Path, seed: int) -> None:
    """Write the files of built-in trees and of silver trees that a row needs, if they are missing.

    The parser of the row `row.teacher`, trained with `seed`, writes the silver trees. The training
    of this parser must be finished.
    """
    wanted = {"train": (_TRAIN, GOLD_TREES), "valid": (_VALID, TEST_TREES),
              "test": (_TEST, TEST_TREES)}  # fmt: skip
    for name, (stream, count) in wanted.items():
        path = out / "trees" / f"{name}.mrg"
        if path in (*row.files.trees, *row.files.valid_trees, row.test) and not path.exists():
            write_treebank(path, stream, count)
    if row.teacher and not row.files.silver[0].exists():
        parser = load(run_of(out, f"parser-{row.teacher}", seed))
        parser.recipe = parser.recipe.but(beam=1)
        raw = [one.source_tokens for one in islice(examples(_RAW), SILVER_TREES)]
        lines = (f"{treebank_line(tree)}\n" for tree in parser.parse(raw))
        write_file(row.files.silver[0], "".join(lines))
