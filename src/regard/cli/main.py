"""`regard`: the commands, and the one place where a refusal becomes a sentence and status 2."""

import os
import sys

import typer

from regard.cli.average import average
from regard.cli.demo import demo
from regard.cli.prepare import prepare
from regard.cli.score import score
from regard.cli.train import train
from regard.cli.translate import translate
from regard.errors import RegardError

app = typer.Typer(
    help='"Attention Is All You Need" as working software.',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
for command in (demo, prepare, train, average, translate, score):
    app.command()(command)


def main() -> None:
    """Run a command; bad input ends in one sentence on stderr and exit status 2."""
    try:
        app()
    except RegardError as error:
        _leave(f"regard: {error}", 2)
    except KeyboardInterrupt:
        _leave("regard: interrupted", 130)
    except BrokenPipeError:
        # Whoever read our output has enough of it; nothing more may be written to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


def _leave(sentence: str, status: int) -> None:
    print(sentence, file=sys.stderr)  # noqa: T201
    sys.exit(status)
