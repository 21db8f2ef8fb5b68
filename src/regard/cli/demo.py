"""`regard demo`: from nothing to a translator, or a parser, on the built-in grammar corpus."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.console import called
from regard.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from regard.corpus import Example
    from regard.recipe import Recipe

TRAIN_SEED, VALID_SEED, TEST_SEED = 1, 2, 3
VALID_SENTENCES, TEST_SENTENCES = 500, 1000


def demo_recipe() -> "Recipe":
    """A Transformer small enough to learn the built-in grammar in minutes on two cores."""
    from regard.recipe import Recipe

    return Recipe().but(
        layers=2,
        d_model=128,
        d_ff=512,
        heads=4,
        dropout=0.0,  # so regular a language is not learned by heart
        vocabulary=2000,
        row_length=64,
        max_length=64,
        source_tokens=2048,
        target_tokens=2048,
        steps=1200,
        warmup_steps=400,
        log_every=20,
        validate_every=400,
        validate_sentences=100,
        save_every=40,
        save_minutes=0.0,
    )


def demo(
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run directory, runs/demo or runs/demo-parse; an unfinished demo goes on."
        ),
    ] = None,
    task: Annotated[str, typer.Option(help="translate, or parse.")] = "translate",
    pairs: Annotated[
        int, typer.Option(min=1000, max=10**7, help="Sentence pairs, or trees, to learn from.")
    ] = 20_000,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps, to see less or more of it.")
    ] = None,
    threads: Annotated[int, typer.Option(min=0, help="Processor cores; 0 is all.")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Make a corpus, train a small Transformer on it, and show what it learned.

    The corpus is an English-German grammar with case, gender, separable verbs and pronouns whose
    gender depends on a noun up to a clause away; nothing is downloaded. With --task parse what is
    learned is the tree of each English sentence.

    Example: `regard demo --out runs/demo`
    """
    from regard.cli.demo_parse import demo_parse
    from regard.cli.prepare import prepare_for_training
    from regard.cli.train import run_training
    from regard.corpus import example, write_corpus
    from regard.machine.devices import set_threads

    set_threads(threads)
    if task == "parse":
        demo_parse(out or Path("runs/demo-parse"), pairs, steps, quiet)
        return
    if task != "translate":
        raise RecipeError(f"--task {task}: it is translate or parse")
    out = out or Path("runs/demo")
    recipe = demo_recipe()
    if steps is not None:
        recipe = recipe.but(steps=steps)
    corpus = out / "corpus"
    if not goes_on(out, recipe, pairs):
        write_corpus(corpus / "train", TRAIN_SEED, pairs)
        write_corpus(corpus / "valid", VALID_SEED, VALID_SENTENCES)
        prepare_for_training(
            [corpus / "train.en"], [corpus / "train.de"], out / "data", recipe,
            [corpus / "valid.en"], [corpus / "valid.de"], None, quiet,
        )  # fmt: skip
    run_training(recipe, out, out / "data", quiet=quiet)
    report(out, [example(TEST_SEED, i) for i in range(TEST_SENTENCES)])


def goes_on(out: Path, recipe: "Recipe", pairs: int) -> bool:
    """Whether this demo was begun; raises RecipeError where another was."""
    from regard.data.pairs import read_manifest
    from regard.run.beginning import begun, differences

    earlier = begun(out)
    if earlier is None:
        return False
    if changes := differences(earlier, recipe):
        more = "" if len(changes) == 1 else f" and {len(changes) - 1} more"
        raise RecipeError(f"{out}: holds another run ({changes[0]}{more}): choose another --out")
    its = read_manifest(out / "data")["counts"]["train"]["read"]
    if its != pairs:
        raise RecipeError(f"{out}: was begun with --pairs {its}: choose another --out")
    return True


def report(out: Path, unseen: "list[Example]") -> None:
    """Translate unseen sentences; print and keep how well that went, and what to try next."""
    from rich.console import Console
    from rich.table import Table

    from regard.corpus import pronoun_accuracy
    from regard.files.whole import write_file
    from regard.run.journal import read_journal
    from regard.score.bleu import bleu
    from regard.translation import load

    outputs = load(out).translate(e.source for e in unseen)
    result = {
        "bleu": round(bleu(outputs, [[e.target for e in unseen]]), 2),
        "pronoun_accuracy": round(100 * pronoun_accuracy(unseen, outputs), 2),
        "train_seconds": read_journal(out / "journal.jsonl")[-1]["seconds"],
        "sentences": len(unseen),
    }
    write_file(out / "result.json", json.dumps(result, indent=1) + "\n")

    stdout = Console(highlight=False)
    translations = Table(title="Ten unseen sentences", show_header=False)
    for e, output in list(zip(unseen, outputs, strict=True))[:10]:
        translations.add_row("English", e.source)
        translations.add_row("translation", output)
        same = output == e.target
        translations.add_row("reference", "the same" if same else e.target, end_section=True)
    stdout.print(translations)
    place = shlex.quote(str(out))
    conclude(
        stdout,
        len(unseen),
        {
            "BLEU (sacreBLEU 13a, cased)": f"{result['bleu']:.1f}",
            "pronouns with the right gender": f"{result['pronoun_accuracy']:.1f} %",
            "training time": f"{result['train_seconds']:.0f} s",
        },
        [
            f"{called()} serve {place}=en-de  # then open the address that it prints",
            f"{called()} look {place} 'The dog is big because it sleeps.' --html look.html",
            f"{called()} translate {place} --n-best 4 --json < {place}/corpus/valid.en | head",
            f"{called()} train --source your.en --target your.de --out runs/mine",
        ],
    )


def conclude(
    stdout: "Console", sentences: int, figures: "Mapping[str, str]", commands: "Sequence[str]"
) -> None:
    """Print what was measured on so many sentences, and what to type next."""
    from rich.table import Table

    table = Table(title=f"On {sentences:,} sentences the model has never seen")
    table.add_column("measure")
    table.add_column("result", justify="right")
    for row in figures.items():
        table.add_row(*row)
    stdout.print(table)
    stdout.print("\n  ".join(["Try next:", *commands]), markup=False, soft_wrap=True)
