"""`regard`: all commands. This module turns an error into a sentence and an exit status."""

import io
import os
import sys
from itertools import pairwise
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from regard import __version__
from regard.cli.average import average
from regard.cli.claims import claims
from regard.cli.console import StandardError, silence
from regard.cli.demo import demo
from regard.cli.export import export
from regard.cli.help import help_
from regard.cli.importing import importing
from regard.cli.info import info
from regard.cli.look import look
from regard.cli.paper_diff import paper_diff
from regard.cli.parse import parse
from regard.cli.prepare import prepare
from regard.cli.reproduce import reproduce
from regard.cli.score import score
from regard.cli.serve import serve
from regard.cli.train import train
from regard.cli.translate import translate
from regard.cli.tune import tune
from regard.errors import RegardError, printable, unknown


class Commands(TyperGroup):
    """A group of commands; the error for an unknown command suggests a similar name."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of this name.

        For an unknown name, raises a RecipeError that suggests a similar name or lists names.
        Returns None instead if the unknown name begins with a hyphen, or if a shell asks for
        completions.
        """
        found = super().get_command(ctx, cmd_name)
        if found is None and not cmd_name.startswith("-") and not ctx.resilient_parsing:
            raise unknown("command", cmd_name, list(self.commands))
        return found


app = typer.Typer(
    cls=Commands,
    help='"Attention Is All You Need" as working software.',
    epilog="Begin with `regard demo`, which needs no data; each command has examples: "
    "`regard train --help`.",
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def regard(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Accept the options that are given before a command."""


for command in (
    demo, prepare, train, average, tune, translate, parse, score, look, serve, info, claims,
    reproduce,
):  # fmt: skip
    app.command()(command)
app.add_typer(importing, name="import", cls=Commands)
app.command("paper-diff")(paper_diff)
app.command("help")(help_)
app.command()(export)


def main() -> None:
    """Run the command that the command line names.

    An error that users can correct is written to standard error as one sentence, and the exit
    status is 2. The exit status is 130 after Ctrl-C, and 141 after the reader of standard output
    has closed the pipe.
    """
    try:
        _open_closed_streams()
        _write_utf_8()
        _refuse_empty_values(sys.argv[1:])
        # `app()` is not called, because it would print errors in a box or as tracebacks, and
        # would handle interrupts and closed pipes itself.
        command = typer.main.get_command(app)
        if "_REGARD_COMPLETE" in os.environ:  # a shell asks for the completions of a line
            command.main(prog_name="regard")
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
        silence(sys.stdout)
        sys.exit(141)
    except OSError as error:  # for example, the disk behind standard output is full
        if error.filename is None:
            silence(sys.stdout)
        place = "standard output" if error.filename is None else os.fsdecode(error.filename)
        _refuse(f"{place}: {error.strerror or error}: make room there or name another place")


def _open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that is closed; refuse a closed stdout.

    Without /dev/null, the next file that is opened would get the descriptor of the stream. If
    standard output was closed, this function ends the command with an error.
    """
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        mode = "r" if name == "stdin" else "w"
        setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    if "stdout" in closed:
        _refuse("standard output is closed: send it somewhere, as with > /dev/null")


def _write_utf_8() -> None:
    """Make standard output UTF-8, whatever the locale is: text that regard reads is UTF-8, too.

    Bytes that Python could not decode in a file name are written unchanged.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")


def _refuse_empty_values(arguments: list[str]) -> None:
    """End the command with an error if an option has an empty value or precedes an empty argument.

    An example is --out "$X" if the shell variable X is not set. As a path, an empty value would
    mean the current directory.
    """
    for before, argument in pairwise(["", *arguments]):
        option, equals, value = argument.partition("=")
        if argument.startswith("--") and equals and not value:
            _refuse(f"{option} has no value: is the shell variable after it set?")
        if not argument and before.startswith("-"):
            _refuse(f"{before} is followed by an empty argument: is that shell variable set?")


def _usage(error: typer.TyperException) -> str:
    """A sentence that says what is wrong with the command line."""
    context: Any = getattr(error, "ctx", None)
    if context and hasattr(error, "possibilities"):  # the command line has an unknown option
        name = getattr(error, "option_name", "")
        if isinstance(context.command, Commands):
            return f"unknown option {name}: options of a command are given after its name"
        params = context.command.get_params(context)
        every = [option for p in params for option in (*p.opts, *p.secondary_opts)]
        options = [option for option in every if option.startswith("-")]
        where = f"{context.command_path} --help"
        return str(unknown("option", name, options, lambda option: option.lstrip("-"), where))
    problem = error.format_message().rstrip(".").replace("'", "")
    path = context.command_path if context else _named_command()
    return f"{problem[:1].lower()}{problem[1:]}: see {path} --help"


def _named_command() -> str:
    """The command that the command line names: `regard train`, `regard import hf`, or `regard`."""
    words: list[str] = ["regard"]
    command: Any = typer.main.get_command(app)
    for argument in sys.argv[1:]:
        if argument not in (known := getattr(command, "commands", {})):
            break
        command = known[argument]
        words.append(argument)
    return " ".join(words)


def _refuse(sentence: str) -> NoReturn:
    _leave(sentence, 2)


def _leave(sentence: str, status: int) -> NoReturn:
    print(f"regard: {printable(sentence)}", file=StandardError())
    sys.exit(status)
