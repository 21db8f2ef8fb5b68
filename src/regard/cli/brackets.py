"""`regard score --trees`: prints what EVALB would print, and ends with EVALB's exit status."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import typer

from regard.errors import DataError, printable
from regard.files.lines import read_blocks
from regard.score.brackets import Message, Remark, TooManyErrors, compare
from regard.score.evalb.parameters import COLLINS, EvalbParameters, read_parameters
from regard.score.evalb.report import HEADER, BracketScores, Row


def score_trees(
    gold: Path,
    test: Path,
    params: str | None,
    max_errors: int | None,
    cutoff: int | None,
    as_json: bool,
    rows: bool,
) -> None:
    """Compare the trees of two files, and print the scores.

    If `rows` is True, a row for each sentence is printed before the summary. If `as_json` is True,
    only the summary is printed, as JSON. Raises DataError for an unreadable file, and typer.Exit(1)
    after more errors than allowed.
    """
    if str(gold) == str(test) == "-":
        raise DataError("can be read only once: save it in a file first", "standard input")
    parameters = _parameters(params, max_errors, cutoff)
    said = compare(_opened(gold), _opened(test), parameters)
    names = {"gold": _shown(gold), "test": _shown(test)}
    scores, table = BracketScores(parameters.cutoff), rows and not as_json
    if table:
        typer.echo(HEADER)
    try:
        for row in _rows(said, names):
            scores.add(row)
            if table:
                typer.echo(str(row))
    except TooManyErrors:
        if as_json:
            typer.echo("null")
        raise typer.Exit(1) from None
    if as_json:
        typer.echo(json.dumps(scores.as_json()))
    else:
        typer.echo(f"{scores.totals()}\n{scores.summary()}" if table else scores.summary())


def _rows(said: Iterable[Row | Message | Remark], names: dict[str, str]) -> Iterator[Row]:
    """Yield the rows; write messages and remarks to stderr.

    Each remark begins with the name of the file that it is about.
    """
    for one in said:
        match one:
            case Row():
                yield one
            case Message(line, text):
                _tell(f"{line} : {text}")
            case Remark(side, line, text):
                _tell(printable(f"{names[side]}:{line}: {text}"))


def _parameters(name: str | None, max_errors: int | None, cutoff: int | None) -> EvalbParameters:
    if name is None or (name == "COLLINS.prm" and not Path(name).exists()):
        parameters = COLLINS
    else:
        parameters, said = read_parameters(name)
        for text in said:
            _tell(text)
    return replace(
        parameters,
        max_errors=parameters.max_errors if max_errors is None else max_errors,
        cutoff=parameters.cutoff if cutoff is None else cutoff,
    )


def _opened(path: Path) -> Iterator[bytes]:
    """The lines of a file; the first line is read at once, so that a bad file is refused early."""
    lines = _lines(path)
    return chain(list(islice(lines, 1)), lines)


def _lines(path: Path) -> Iterator[bytes]:
    number = 1
    for block in read_blocks(path):
        if (at := block.find(b"\0")) >= 0:
            raise DataError(
                "has a NUL byte, so this is a binary file or UTF-16: give one tree a line, as text",
                _shown(path),
                number + block.count(b"\n", 0, at),
            )
        lines = block[:-1].split(b"\n")
        yield from lines
        number += len(lines)


def _tell(text: str) -> None:
    """Write a line to standard error; bytes that are not UTF-8 are written unchanged."""
    typer.echo(text.encode("utf-8", "surrogateescape"), err=True)


def _shown(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)
