"""`regard score --trees`: prints what EVALB would print, and ends with EVALB's exit status."""

import json
import re
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

_UNLABELLED = re.compile(rb"\s*\(\s*\(")


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
    only the summary is printed, as JSON. If only one file has brackets without a label around its
    trees, a sentence on standard error says so. Raises DataError for an unreadable file, and
    typer.Exit(1) after more errors than allowed.
    """
    if str(gold) == str(test) == "-":
        raise DataError("can be read only once: save it in a file first", "standard input")
    parameters = _parameters(params, max_errors, cutoff)
    names, unlabelled = {"gold": _shown(gold), "test": _shown(test)}, set[str]()
    expected = _noting(_opened(gold), "gold", unlabelled)
    said = compare(expected, _noting(_opened(test), "test", unlabelled), parameters)
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
    if len(unlabelled) == 1:
        _tell(
            f"{printable(names[unlabelled.pop()])}: its trees stand in a bracket without a label, "
            "which EVALB counts and the other file lacks, so F1 is too low: give both files the "
            "same outer bracket (sed 's/^( *(/(TOP (/' labels it)"
        )
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


def _noting(lines: Iterable[bytes], side: str, unlabelled: set[str]) -> Iterator[bytes]:
    """Yield the lines; add `side` to `unlabelled` at a tree in a bracket without a label."""
    for line in lines:
        if _UNLABELLED.match(line):
            unlabelled.add(side)
        yield line


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
