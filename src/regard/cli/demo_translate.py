"""For `regard demo`: the recipe of the translator, and its results on unseen sentences."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.console import called
from regard.cli.demo_corpus import Shown, unseen

if TYPE_CHECKING:
    from rich.console import Console

    from regard.corpus import Example
    from regard.recipe import Recipe


def demo_recipe() -> "Recipe":
    """The recipe of a Transformer that learns the built-in grammar in minutes on two cores."""
    from regard.recipe import Recipe

    return Recipe().but(
        layers=2,
        d_model=128,
        d_ff=512,
        heads=4,
        dropout=0.0,  # the language is so regular that the model does not overfit
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


def show_translations(out: Path, stdout: "Console") -> Shown:
    """Translate unseen sentences, and print ten of them with their translations.

    Returns the scores over all sentences, and commands to try next.
    """
    from regard.corpus import pronoun_accuracy
    from regard.score.bleu import bleu
    from regard.translation import load

    examples = unseen()
    outputs = load(out).translate(e.source for e in examples)
    result = {
        "bleu": round(bleu(outputs, [[e.target for e in examples]]), 2),
        "pronoun_accuracy": round(100 * pronoun_accuracy(examples, outputs), 2),
    }
    _print_ten(examples, outputs, stdout)
    place = shlex.quote(str(out))
    figures = {
        "BLEU (sacreBLEU 13a, cased)": f"{result['bleu']:.1f}",
        "pronouns with the right gender": f"{result['pronoun_accuracy']:.1f} %",
    }
    commands = [
        f"{called()} serve {place}=en-de  # then open the address that it prints",
        f"{called()} look {place} 'The dog is big because it sleeps.' --html look.html",
        f"{called()} translate {place} --n-best 4 --json < {place}/corpus/valid.en | head",
        f"{called()} train --source your.en --target your.de --out runs/mine",
    ]
    return Shown(result, figures, commands)


def _print_ten(examples: "list[Example]", outputs: list[str], stdout: "Console") -> None:
    from rich.table import Table

    table = Table(title="Ten unseen sentences", show_header=False)
    for example, output in list(zip(examples, outputs, strict=True))[:10]:
        table.add_row("English", example.source)
        table.add_row("translation", output)
        same = output == example.target
        table.add_row("reference", "the same" if same else example.target, end_section=True)
    stdout.print(table)
