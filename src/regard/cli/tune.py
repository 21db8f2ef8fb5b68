"""`regard tune`: chooses beam and length penalty of a translator on a development set."""

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.console import note
from regard.cli.options import ThreadsOption


def tune(
    model: Annotated[Path, typer.Argument(help="A model directory, or a finished run.")],
    source: Annotated[Path, typer.Option(help="Text of the development set.")],
    reference: Annotated[Path, typer.Option(help="Translation of the source, line by line.")],
    dry_run: Annotated[bool, typer.Option(help="Do not change the model's settings.")] = False,
    threads: ThreadsOption = 0,
) -> None:
    """Choose beam and length penalty by BLEU on a development set (§6.1), and save them.

    First, several values of alpha, the exponent of the length penalty, are tried. The alpha with
    the highest weighted mean of BLEU is chosen: in this mean, the BLEU of the alpha itself has the
    weight 2, and the BLEU of the next smaller and of the next larger alpha the weight 1 each. The
    smallest and the largest alpha that are tried have only one neighbour; such an alpha is chosen
    only if this neighbour has no higher BLEU. Then several beams are tried with the chosen alpha,
    and the beam with the highest BLEU is chosen. If the model is a finished run, a later `regard
    train` with this run keeps the chosen beam and alpha.

    Never give a test set here: its BLEU would then no longer be measured on unseen text.

    Example: `regard tune runs/x --source dev.en --reference dev.de`
    """
    from regard.files.lines import read_lines, refuse_standard_input_twice, shown_name
    from regard.files.whole import refuse_unwritable
    from regard.machine.devices import set_threads
    from regard.measure.tuning import (
        Tried,
        keep_chosen,
        refuse_unaligned,
        try_searches,
        write_tuned,
    )
    from regard.run.journal import Journal
    from regard.run.model_directory import open_model
    from regard.text.scripts import suited_tokenizer
    from regard.translation import load

    refuse_standard_input_twice(source, reference)
    set_threads(threads)
    sources, references = list(read_lines(source)), list(read_lines(reference))
    refuse_unaligned(source, sources, reference, references)

    def show(one: Tried) -> None:
        typer.echo(f"beam {one.beam:<4}alpha {one.alpha:<5}BLEU {one.bleu:.2f}")

    opened, journal = open_model(model), Journal(model / "journal.jsonl")
    if not dry_run:
        refuse_unwritable(model)
    tokenizer, own = opened.recipe.training.bleu_tokenizer, opened.recipe.search
    if tokenizer == "13a" and (suited := suited_tokenizer(references)) != tokenizer:
        tokenizer = suited
        name = shown_name(reference)
        note(f"{name}: BLEU divides its words by {tokenizer}, because 13a does not suit them")
    tried = try_searches(load(model), sources, references, tokenizer, heard=show)
    if not dry_run:
        keep_chosen(model, tried)
        if journal.path.exists():  # `model` is a run directory
            write_tuned(journal, opened.manifest.get("step", 0), len(sources), own, tried)
    beam, alpha, _ = tried[0]
    typer.echo(f"{model}: chosen: beam {beam}, alpha {alpha}" + ", not kept" * dry_run)
