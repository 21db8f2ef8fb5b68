"""`regard score --report`: prints several scores, explains each, and compares systems.

The score bleu_paper is, by default, BLEU as the paper's authors computed it.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import typer

from regard.cli.console import note
from regard.errors import RecipeError, unknown
from regard.recipe import BleuTokenizer
from regard.score.bleu import Figure
from regard.score.moses import has_abbreviations
from regard.score.report import (
    ALL_STEPS,
    PAPER_STEPS,
    ReportedScore,
    TextSteps,
    looks_tokenised,
    recognise,
    report_translations,
    score_by_steps,
)
from regard.text.scripts import refuse_country


def chosen_steps(text: str | None) -> TextSteps | None:
    """The steps that prepare text for bleu_paper, as named in `text`, in the order of ALL_STEPS.

    `text` is the value of --steps, such as "tokenise,split". Returns None if `text` is None (the
    option is left out), and () if `text` is "none". Raises RecipeError for an unknown step, or for
    "none" with other steps.
    """
    if text is None:
        return None
    names = [] if text == "none" else text.split(",")
    if "none" in names:
        raise RecipeError("--steps: none goes with no other step: leave out none, or the others")
    for name in names:
        if name not in ALL_STEPS:
            raise unknown("step", name, [*ALL_STEPS, "none"])
    return cast(TextSteps, tuple(step for step in ALL_STEPS if step in names))


def chosen_language(text: str | None, reference: Path) -> str:
    """The code of the language by whose rules bleu_paper divides words, such as "de".

    If the option --language is given, its value `text` is the code. Otherwise, the code is the
    ending of the name of the file `reference`: "fr" for `ref.fr` and `ref.fr.gz`. If Moses'
    tokenizer has no list of abbreviations for this ending, the code is "de", and a note says so. A
    note is also written if the tokenizer has no list for the language `text`. Raises RecipeError if
    `text` is not two or three lower-case letters, or if it is a country's code that is often taken
    for a language's, such as "jp".
    """
    if text is None:
        packed = reference.suffix in {".gz", ".xz", ".zst"}
        ending = (reference.with_suffix("") if packed else reference).suffix.removeprefix(".")
        if has_abbreviations(ending):
            return ending
        note("bleu_paper takes the text for German: for another language, add --language")
        return "de"
    if not re.fullmatch("[a-z]{2,3}", text):
        raise RecipeError(f"--language {text}: it is a code of two or three letters, such as de")
    refuse_country(text)
    if not has_abbreviations(text):
        note(f"--language {text}: Moses lists no abbreviations of it, and takes those of English")
    return text


def print_report(
    names: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    language: str,
    steps: TextSteps | None,
    tokenizer: BleuTokenizer,
    as_json: bool,
) -> None:
    """Print five scores of each system's translations, and compare each system with the first one.

    A `tokenizer` other than 13a and intl adds a sixth score: BLEU by this tokenizer.
    `steps` prepare the text for bleu_paper. If `steps` is None, the steps of the paper are used, or
    no steps if all texts look tokenised. If `as_json` is True, one JSON object is printed, and no
    other lines. Raises the errors of `report_translations`.
    """
    done = _fitting_steps([*systems, *references]) if steps is None else steps
    scores = report_translations(systems, references, language, done, tokenizer)
    by_steps = score_by_steps(systems[0], references, language) if done == PAPER_STEPS else {}
    hint = recognise(len(systems[0]))
    if as_json:
        shown: dict[str, Any] = {key: _as_json(one, names) for key, one in scores.items()}
        shown["bleu_paper"]["by_steps"] = by_steps
        typer.echo(json.dumps({"lines": len(systems[0]), "hint": hint} | shown))
        return
    if hint:
        typer.echo(hint)
    for key, one in scores.items():
        typer.echo(f"{key}\n  {one.meaning}\n  {one.signature}")
        for name, figure in zip(names, one.figures, strict=True):
            typer.echo(figure_line(figure, name))
        if key == "bleu_paper" and by_steps:
            told = ", ".join(f"{which} {score:.2f}" for which, score in by_steps.items())
            typer.echo(f"  {names[0]} by steps: {told}")


def _fitting_steps(texts: Sequence[Sequence[str]]) -> TextSteps:
    """The steps that prepare text for bleu_paper if --steps is not given.

    There are no steps if all texts look tokenised. Otherwise, the steps are `PAPER_STEPS`. A note
    is written if one or more texts look tokenised.
    """
    tokenised = [looks_tokenised(text) for text in texts]
    if all(tokenised):
        note("the text looks tokenised: bleu_paper takes its words as they stand (--steps)")
        return ()
    if any(tokenised):
        note("some texts look tokenised and some do not: such scores mean little")
    return PAPER_STEPS


def _as_json(one: ReportedScore, names: Sequence[str]) -> dict[str, Any]:
    first, *others = one.figures
    return {
        "score": first.score,
        "interval": first.interval,
        "signature": one.signature,
        "meaning": one.meaning,
        "versus": {
            name: {"score": figure.score, "interval": figure.interval, "p": figure.p}
            for name, figure in zip(names[1:], others, strict=True)
        },
    }


def figure_line(figure: Figure, name: str) -> str:
    """A line with a score, its 95 % interval, the system's name and the p-value (if not None)."""
    low, high = figure.interval
    p = "" if figure.p is None else f"  p = {figure.p:.3f}"
    return f"  {figure.score:6.2f}  [{low:.2f}, {high:.2f}]  {name}{p}"
