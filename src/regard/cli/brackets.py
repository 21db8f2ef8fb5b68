"""`regard score --trees`: prints what EVALB would print, and ends with EVALB's exit status."""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import typer

from regard.cli.console import silence
from regard.errors import DataError, printable
from regard.files.lines import read_blocks, refuse_standard_input_twice, shown_name
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

    `params` is the name of a parameter file of EVALB. If `params` is None, or if it is COLLINS.prm
    and there is no such file, the built-in COLLINS.prm is used. If `max_errors` or `cutoff` is not
    None, it replaces the value in the parameter file. If `rows` is True, a row for each sentence is
    printed before the summary. If `as_json` is True, only the summary is printed, as JSON. A remark
    is written to standard error if a tree has several lines, or if the trees of only one file are
    inside brackets without a label, as in `( (S ...))`. Raises DataError if a file cannot be read,
    if the parameter file is too large, if `gold` or `test` has a NUL byte, if only one of these two
    is empty, or if both are standard input. Raises typer.Exit(1) after more errors than allowed;
    with `as_json`, null is printed first.
    """
    refuse_standard_input_twice(gold, test)
    parameters = _parameters(params, max_errors, cutoff)
    names = {"gold": shown_name(gold), "test": shown_name(test)}
    watched = [_Watched(name) for name in names.values()]
    expected, found = map(_Watched.lines, watched, _opened(gold, test))
    said = compare(expected, found, parameters)
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
    _tell_unlabelled(watched)
    if as_json:
        typer.echo(json.dumps(scores.as_json()))
    else:
        typer.echo(f"{scores.totals()}\n{scores.summary()}" if table else scores.summary())


def _rows(said: Iterable[Row | Message | Remark], names: dict[str, str]) -> Iterator[Row]:
    """Yield the rows in `said`; write the messages and remarks in `said` to standard error.

    `said` is what `compare` yields, with a row for each sentence. A remark begins with the name of
    the file that the remark is about. `names` has the names of the files "gold" and "test".
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


def _opened(*paths: Path) -> list[Iterator[bytes]]:
    """The lines of each file; only the first block of each file is read now.

    Raises DataError if a first block cannot be read or has a NUL byte, or if some files are empty
    and others are not. Such files are thus refused before scores are printed.
    """
    every = [_lines(path) for path in paths]
    first = [list(islice(lines, 1)) for lines in every]
    if any(first) and [] in first:
        raise DataError("is empty: there is nothing to score", shown_name(paths[first.index([])]))
    return list(map(chain, first, every))


@dataclass
class _Watched:
    """A file whose lines are checked just before they are compared."""

    name: str
    unlabelled: bool = False
    """Whether a tree is inside a bracket without a label, as in `( (S ...))`."""
    cut: bool = False
    """Whether a line has left a bracket open."""
    told: bool = False
    """Whether `lines` has written its remark."""

    def lines(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines; write a remark once if a tree has more than one line.

        A tree seems to have more than one line in this case: a line leaves a bracket open, and a
        later line is indented, or closes more brackets than it opens.
        """
        for line in lines:
            self.unlabelled |= bool(_UNLABELLED.match(line))
            more = line.count(b"(") - line.count(b")")
            goes_on = more < 0 or (line[:1].isspace() and line.strip())
            if self.cut and goes_on and not self.told:
                self.told = True
                _tell(f"{printable(self.name)}: give one tree a line")
            self.cut |= more > 0
            yield line


def _tell_unlabelled(watched: Sequence[_Watched]) -> None:
    """Write a remark if the trees of only one file are inside brackets without a label."""
    unlabelled = [one.name for one in watched if one.unlabelled]
    if len(unlabelled) == 1:
        _tell(
            f"{printable(unlabelled[0])}: its trees stand in a bracket without a label, "
            "which EVALB counts and the other file lacks, so F1 is too low: give both files the "
            "same outer bracket (sed 's/^ *( *(/(TOP (/' labels it)"
        )


def _lines(path: Path) -> Iterator[bytes]:
    number = 1
    for block in read_blocks(path):
        if (at := block.find(b"\0")) >= 0:
            raise DataError(
                "has a NUL byte, so this is a binary file or UTF-16: give one tree a line, as text",
                shown_name(path),
                number + block.count(b"\n", 0, at),
            )
        lines = block[:-1].split(b"\n")
        yield from lines
        number += len(lines)


def _tell(text: str) -> None:
    """Write a line to standard error; a surrogate escape is written as the byte it stands for.

    If standard error cannot be written, this text and all later texts are discarded.
    """
    try:
        typer.echo(text.encode("utf-8", "surrogateescape"), err=True)
    except OSError:
        silence(sys.stderr)
