"""For `regard demo --task parse`: the recipe of the parser, and its results on unseen sentences."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.console import called
from regard.cli.demo_corpus import Shown, unseen

if TYPE_CHECKING:
    from rich.console import Console

    from regard.recipe import Recipe

DRAWN = 2
"""Number of trees to draw."""


def parse_recipe() -> "Recipe":
    """The recipe of a Transformer that learns the built-in trees in minutes on two cores."""
    from regard.presets import SMALL_PARSE

    return SMALL_PARSE.but(
        dropout=0.0,
        recombined=0,
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


def show_trees(out: Path, stdout: "Console") -> Shown:
    """Parse unseen sentences, and draw the first DRAWN trees.

    Returns the scores over all sentences, and commands to try next.
    """
    from regard.measure.validation import compare_trees
    from regard.parsing import load
    from regard.trees.draw import drawn
    from regard.trees.penn import read_trees

    examples = unseen()
    found = load(out).parse(e.source_tokens for e in examples)
    gold = list(read_trees((e.tree for e in examples), "the built-in grammar"))
    measured = compare_trees(found, gold).figures()
    result = {
        "f1": round(measured["f"], 2) if measured["recall"] else 0.0,
        "complete_match": round(measured["complete_match"], 2),
        "tagging_accuracy": round(measured["tagging_accuracy"], 2),
    }
    for tree, right in list(zip(found, gold, strict=True))[:DRAWN]:
        same = "as the grammar has it" if tree == right else "not as the grammar has it"
        stdout.print(f"{drawn(tree, stdout.width)}\n({same})\n", markup=False, soft_wrap=True)
    place = shlex.quote(str(out))
    figures = {
        "F1 of brackets (EVALB)": f"{result['f1']:.1f}",
        "trees without a fault": f"{result['complete_match']:.1f} %",
        "tags": f"{result['tagging_accuracy']:.1f} %",
    }
    commands = [
        f"echo 'The dog is big .' | {called()} parse {place} --tokenised --draw",
        f"{called()} parse {place} --json < your.txt",
        f"{called()} train --task parse --trees your.mrg --out runs/parser",
    ]
    return Shown(result, figures, commands)
