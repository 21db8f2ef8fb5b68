"""`regard demo --task parse`: from nothing to a parser, on the trees of the built-in corpus."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.console import called
from regard.cli.demo import (
    TEST_SEED,
    TEST_SENTENCES,
    TRAIN_SEED,
    VALID_SEED,
    VALID_SENTENCES,
    conclude,
    goes_on,
)

if TYPE_CHECKING:
    from regard.corpus import Example
    from regard.recipe import Recipe

DRAWN = 2
"""Trees shown."""


def parse_recipe() -> "Recipe":
    """A Transformer small enough to learn the built-in trees in minutes on two cores."""
    from regard.presets import SMALL_PARSE

    return SMALL_PARSE.but(
        dropout=0.0,
        vocabulary=1500,
        max_length=128,
        row_length=128,
        source_tokens=1024,
        target_tokens=1024,
        steps=2000,
        warmup_steps=400,
        log_every=20,
        validate_every=400,
        validate_sentences=50,
        save_every=40,
        average=5,
        beam=4,
    )


def demo_parse(out: Path, trees: int, steps: int | None, quiet: bool) -> None:
    """Make trees, train a small parser on them, and show what it learned."""
    from regard.cli.train import run_training
    from regard.cli.treebank import TreeFiles
    from regard.corpus import example

    recipe = parse_recipe()
    if steps is not None:
        recipe = recipe.but(steps=steps)
    corpus = out / "corpus"
    if not goes_on(out, recipe, trees):
        _write_trees(corpus / "train.mrg", TRAIN_SEED, trees)
        _write_trees(corpus / "valid.mrg", VALID_SEED, VALID_SENTENCES)
        files = TreeFiles([corpus / "train.mrg"], [corpus / "valid.mrg"])
        files.prepare(out / "data", recipe, None, quiet)
    run_training(recipe, out, out / "data", quiet=quiet)
    report(out, [example(TEST_SEED, i) for i in range(TEST_SENTENCES)])


def _write_trees(path: Path, seed: int, count: int) -> None:
    from regard.corpus import example
    from regard.files.whole import write_file

    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, "".join(f"( {example(seed, i).tree})\n" for i in range(count)))


def report(out: Path, unseen: "list[Example]") -> None:
    """Parse unseen sentences; print and keep how well that went, and what to try next."""
    from rich.console import Console

    from regard.files.whole import write_file
    from regard.measure.validation import compare_trees
    from regard.parsing import load
    from regard.run.journal import read_journal
    from regard.trees.draw import drawn
    from regard.trees.penn import read_trees

    found = load(out).parse(e.source_tokens for e in unseen)
    gold = list(read_trees((e.tree for e in unseen), "the built-in grammar"))
    figures = compare_trees(found, gold).figures()
    seconds = read_journal(out / "journal.jsonl")[-1]["seconds"]
    result = {
        "f1": round(figures["f"], 2) if figures["recall"] else 0.0,
        "complete_match": round(figures["complete_match"], 2),
        "tagging_accuracy": round(figures["tagging_accuracy"], 2),
        "train_seconds": seconds,
        "sentences": len(unseen),
    }
    write_file(out / "result.json", json.dumps(result, indent=1) + "\n")

    stdout = Console(highlight=False)
    for tree, right in list(zip(found, gold, strict=True))[:DRAWN]:
        same = "as the grammar has it" if tree == right else "not as the grammar has it"
        stdout.print(f"{drawn(tree, stdout.width)}\n({same})\n", markup=False, soft_wrap=True)
    place = shlex.quote(str(out))
    conclude(
        stdout,
        len(unseen),
        {
            "F1 of brackets (EVALB)": f"{result['f1']:.1f}",
            "trees without a fault": f"{result['complete_match']:.1f} %",
            "tags": f"{result['tagging_accuracy']:.1f} %",
            "training time": f"{seconds:.0f} s",
        },
        [
            f"echo 'The dog is big .' | {called()} parse {place} --tokenised --draw",
            f"{called()} parse {place} --json < your.txt",
            f"{called()} train --task parse --trees your.mrg --out runs/parser",
        ],
    )
