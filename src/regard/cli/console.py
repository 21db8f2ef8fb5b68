"""Notes and progress bars, which go to standard error, and JSON for standard output."""

import json
import os
import sys
from functools import cache
from pathlib import Path
from shlex import quote
from shutil import which
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from rich.console import Console

    from regard.parts.kept import Finished


@cache
def console() -> "Console":
    """Rich's console for standard error; the library rich is imported at the first call."""
    from rich.console import Console

    return Console(file=cast(IO[str], StandardError()), highlight=False, soft_wrap=True)


class StandardError:
    """Standard error; if a write fails, its text and all later texts are discarded silently.

    A command therefore goes on if `head` stops reading its progress, or if the terminal is closed.
    """

    def write(self, text: str) -> int:
        """Write a text; return its length."""
        try:
            return sys.stderr.write(text)
        except OSError:
            silence(sys.stderr)
            return len(text)

    def flush(self) -> None:
        """Write what is in the buffer."""
        try:
            sys.stderr.flush()
        except OSError:
            silence(sys.stderr)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


def silence(stream: TextIO) -> None:
    """Redirect an unwritable stream to /dev/null, so that Python can flush the stream at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_ESCAPES = {code: f"\\u{code:04x}" for code in (*range(0x7F, 0xA0), 0x2028, 0x2029)}


def json_for_terminal(value: Any, indent: int | None = None) -> str:
    """The JSON of a value; characters that could control a terminal are escaped.

    Characters that could end a line are escaped, too. For example, U+009B is written as \\u009b. If
    `indent` is None, the JSON is one line.
    """
    # JSON itself escapes the control characters below U+0020.
    return json.dumps(value, indent=indent, ensure_ascii=False).translate(_ESCAPES)


def note(message: str) -> None:
    """Write one line to standard error."""
    console().print(message, markup=False, emoji=False)


def note_finished(done: "Finished") -> None:
    """Write a line for a finished part of an experiment, with BLEU, F1 and perplexity, if any."""
    names = {"bleu": "BLEU", "f1": "F1", "perplexity": "perplexity"}
    shown = [f"{label} {done.numbers[n]:.2f}" for n, label in names.items() if n in done.numbers]
    note(f"{done.number:>3} of {done.total}  {done.part}, seed {done.seed}  {', '.join(shown)}")


def called() -> str:
    """The command by which a shell can run regard, for examples that are printed.

    The command is `regard` if a shell finds that name. Otherwise it is the path of the running
    script `regard` or, without such a script, the path of Python followed by `-m regard`.
    """
    if which("regard"):
        return "regard"
    named = Path(sys.argv[0]).name == "regard"
    return quote(sys.argv[0]) if named else f"{quote(sys.executable)} -m regard"
