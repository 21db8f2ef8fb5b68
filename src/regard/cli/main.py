"""`regard`: the commands, and the one place where a refusal becomes a sentence and status 2."""

import os
import sys
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.average import average
from regard.cli.demo import demo
from regard.cli.look import look
from regard.cli.parse import parse
from regard.cli.prepare import prepare
from regard.cli.score import score
from regard.cli.serve import serve
from regard.cli.train import train
from regard.cli.translate import translate
from regard.errors import RegardError, printable, unknown


class Commands(TyperGroup):
    """The commands by name; a name that is none of them is refused with the nearest."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name; raises RecipeError."""
        found = super().get_command(ctx, cmd_name)
        if found is None and not cmd_name.startswith("-"):
            raise unknown("command", cmd_name, list(self.commands))
        return found


app = typer.Typer(
    cls=Commands,
    help='"Attention Is All You Need" as working software.',
    epilog="Begin with `regard demo`, which needs no data; each command has examples: "
    "`regard train --help`.",
    add_completion=False,
    rich_markup_mode="markdown",
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version."),
    ] = False,
) -> None:
    """The options that stand before a command."""


for command in (demo, prepare, train, average, translate, parse, score, look, serve):
    app.command()(command)


def main() -> None:
    """Run a command; bad input ends in one sentence on stderr and exit status 2."""
    try:
        _open_closed_streams()
        _refuse_nothing_as_a_value(sys.argv[1:])
        # Typer's own way to run a command prints its refusals in a box, as tracebacks even, and
        # takes interrupts and closed pipes for itself.
        command = typer.main.get_command(app)
        with command.make_context("regard", sys.argv[1:] or ["--help"]) as context:
            command.invoke(context)
    except typer.Exit as leaving:
        sys.exit(leaving.exit_code)
    except typer.TyperException as error:
        _refuse(_usage(error))
    except RegardError as error:
        _refuse(str(error))
    except KeyboardInterrupt:
        _leave("interrupted", 130)
    except BrokenPipeError:
        _silence(sys.stdout)
        sys.exit(141)
    except OSError as error:  # what no command has foreseen, such as a full disk behind stdout
        if error.filename is None:
            _silence(sys.stdout)
        place = "standard output" if error.filename is None else os.fsdecode(error.filename)
        _refuse(f"{place}: {error.strerror or error}: make room there or name another place")


def _open_closed_streams() -> None:
    """Else the next file to be opened would be taken for one; a closed output is refused."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if "stdout" in closed:
        _refuse("standard output is closed: send it somewhere, as with > /dev/null")


def _refuse_nothing_as_a_value(arguments: list[str]) -> None:
    """A variable of the shell that was never set: taken for a path, it would be this folder."""
    for before, argument in pairwise(["", *arguments]):
        option, equals, value = argument.partition("=")
        if argument.startswith("--") and equals and not value:
            _refuse(f"{option} is given nothing: is what stands after it set?")
        if not argument and before.startswith("-"):
            _refuse(f"{before} is given nothing: is what stands after it set?")


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where to read how it should be."""
    context: Any = getattr(error, "ctx", None)
    if context and hasattr(error, "possibilities"):  # no such option
        name = getattr(error, "option_name", "")
        if isinstance(context.command, Commands):
            return f"unknown option {name}: those of a command stand after its name"
        options = [opt for p in context.command.get_params(context) for opt in p.opts]
        return str(unknown("option", name, options))
    problem = error.format_message().rstrip(".").replace("'", "")
    path = context.command_path if context else "regard"
    return f"{problem[:1].lower()}{problem[1:]}: see {path} --help"


def _refuse(sentence: str) -> NoReturn:
    _leave(sentence, 2)


def _leave(sentence: str, status: int) -> NoReturn:
    print(f"regard: {printable(sentence)}", file=sys.stderr)  # noqa: T201
    sys.exit(status)


def _silence(stream: Any) -> None:
    """Nothing more can be written to it, so what Python does at exit must not try."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
