"""Asking that a command refuses in one sentence with status 2, and touches nothing on disk."""

import io
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import PIPE, run
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest

from regard.cli.main import main
from run.killing import Fork

TINY = [
    argument
    for assignment in (
        *("model.layers=1", "model.d_model=16", "model.d_ff=32", "model.heads=2"),
        *("tokenizer.vocabulary=300", "data.max_length=24", "data.source_tokens=300"),
        *("data.target_tokens=300", "data.layout=packed", "search.beam=2", "search.max_extra=3"),
        *("training.steps=4", "training.save_every=1", "training.save_minutes=0.0"),
        *("training.keep=3", "training.average=2", "training.precision=fp32"),
        "training.validate_sentences=0",
    )
    for argument in ("--set", assignment)
]


GOOD = "the dog sees the cat\n"
"""A line that every command takes."""


class Result(NamedTuple):
    """What a command left behind: its exit status, and what it said."""

    status: int
    stdout: str
    stderr: str


def regard(*argv: str | Path, stdin: bytes = b"") -> Result:
    """Run the command in this process."""
    stdout, stderr, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "argv", ["regard", *map(str, argv)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
    return Result(status, stdout.getvalue(), stderr.getvalue())


def process(
    *argv: str | Path, stdin: bytes = GOOD.encode(), stdout: Any = PIPE, stderr: Any = PIPE
) -> Result:
    """Run the command as users do."""
    command = [sys.executable, "-m", "regard", *map(str, argv)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = run(command, input=stdin, stdout=stdout, stderr=stderr, timeout=60, env=environment)
    said = [(stream or b"").decode() for stream in (done.stdout, done.stderr)]
    return Result(done.returncode, *said)


def forked(*argv: str | Path, stdin: bytes = GOOD.encode()) -> Result:
    """Run the command in a process that has the libraries already, and checks no shapes."""
    with running(*argv, stdin=stdin) as child:
        return child.result(300)


class Child:
    """A command in a fork of a process that has the libraries; `folder` has what it says."""

    def __init__(self, argv: list[str], folder: Path):
        self._process = Fork(target=_be, args=(argv, folder))
        self._folder = folder
        self._process.start()

    def is_running(self) -> bool:
        return self._process.is_alive()

    def send_signal(self, signum: int) -> None:
        assert self._process.pid
        os.kill(self._process.pid, signum)

    def line(self) -> str:
        """The first line of what it says on standard output; empty if it ends without one."""
        while True:
            may_say_more = self.is_running()
            said = (self._folder / "1").read_text("utf-8")
            if "\n" in said or not may_say_more:
                return said.partition("\n")[0]
            time.sleep(0.005)

    def result(self, seconds: float) -> Result:
        """What it left behind at its end, for which it has this time."""
        self._process.join(seconds)
        self._process.kill()
        self._process.join()
        said = [(self._folder / stream).read_text("utf-8") for stream in "12"]
        return Result(self._process.exitcode or 0, *said)


@contextmanager
def running(*argv: str | Path, stdin: bytes = GOOD.encode()) -> Iterator[Child]:
    """A command as in `forked`, while it runs; its process is killed after the block."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for stream, content in enumerate((stdin, b"", b"")):
            (folder / str(stream)).write_bytes(content)
        child = Child([*map(str, argv)], folder)
        try:
            yield child
        finally:
            child.result(0)


def _be(argv: list[str], folder: Path) -> None:
    for stream, mode in enumerate(("rb", "wb", "wb")):
        with (folder / str(stream)).open(mode) as file:
            os.dup2(file.fileno(), stream)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["regard", *argv]
    main()


def refused(*argv: str | Path, stdin: bytes = b"") -> str:
    """The one sentence with which the command refuses."""
    return sentence(regard(*argv, stdin=stdin))


def sentence(result: Result) -> str:
    assert result.status == 2, result
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("regard: ")
    assert 20 < len(lines[0]) < 600
    return lines[0].removeprefix("regard: ")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below this one, with what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    before = contents(folder)
    yield
    after = contents(folder)
    assert after.keys() == before.keys()
    assert [name for name in after if after[name] != before[name]] == []


class World(NamedTuple):
    """The folder of one test: source.en and target.de, and copies of what was made of them."""

    folder: Path
    made: Path

    def copy(self, name: str) -> Path:
        """`data`, `run` or `model`, to be spoiled."""
        return Path(shutil.copytree(self.made / name, self.folder / name))

    def write(self, name: str, content: bytes | str) -> Path:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    @property
    def text(self) -> list[str | Path]:
        return ["--source", self.folder / "source.en", "--target", self.folder / "target.de"]

    @property
    def recipe(self) -> list[str]:
        return ["--recipe", "base", *TINY]

    @property
    def out(self) -> list[str | Path]:
        return ["-q", "--out", self.folder / "out"]
