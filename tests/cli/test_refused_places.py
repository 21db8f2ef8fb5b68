"""Where nothing can be written, nothing is: what was there stays as it was."""

import errno
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.refusing import World, contents, refused, regard, unchanged
from files.limits import files_of_at_most

NOWHERE = "/proc/self/nowhere"  # not even root can write there


WRITERS: dict[str, Callable[[World, str | Path], list[str | Path]]] = {
    "prepare": lambda w, out: ["prepare", "-q", *w.text, "--out", out, *w.recipe],
    "train": lambda w, out: [*("train", "-q", "--data", w.made / "data", "--out", out, *w.recipe)],
    "train from text": lambda w, out: ["train", "-q", *w.text, "--out", out],
    "average": lambda w, out: ["average", w.made / "run", "--last", "2", "--out", out],
    "demo": lambda _, out: ["demo", "-q", "--pairs", "1000", "--out", out],
}


def test_a_file_is_in_the_way_of_training_on_data(world: World) -> None:
    """Neither the recipe nor the text is prepared first, and nothing is cleaned up there."""
    out = world.write("out", "mine\n")
    with unchanged(world.folder):
        said = refused("train", "--data", world.made / "data", "--out", out)
    assert said == f"{out}: is a file: name a run directory"


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_is_in_the_way(world: World, writer: str) -> None:
    out = world.write("out", "mine\n")
    with unchanged(world.folder):
        said = refused(*WRITERS[writer](world, out))
    assert said.startswith(f"{out}: ")
    assert re.search("is a file: |exists already: ", said)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_file_is_in_the_way_of_the_parent(world: World, writer: str) -> None:
    out = world.write("parent", "mine\n") / "out"
    with unchanged(world.folder):
        said = refused(*WRITERS[writer](world, out))
    assert said.startswith(f"{out}")
    assert re.search("make room there or (choose|name) another|name a directory", said)


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_can_be_written_there(world: World, writer: str) -> None:
    with unchanged(world.folder):
        said = refused(*WRITERS[writer](world, NOWHERE))
    assert said.startswith(NOWHERE)
    assert re.search("make room there or (choose|name) another", said)


@pytest.mark.parametrize("writer", WRITERS)
def test_a_name_that_is_too_long(world: World, writer: str) -> None:
    out = world.folder / ("x" * 300)
    with unchanged(world.folder):
        said = refused(*WRITERS[writer](world, out))
    assert os.strerror(errno.ENAMETOOLONG) in said


@pytest.mark.parametrize("room", [0, 300, 2000])
@pytest.mark.parametrize("writer", ["prepare", "average"])
def test_a_full_disk_leaves_nothing(world: World, writer: str, room: int) -> None:
    out = world.folder / "deep" / "out"
    with unchanged(world.folder), files_of_at_most(room):
        said = refused(*WRITERS[writer](world, out))
    assert os.strerror(errno.EFBIG) in said
    assert "nothing is left half-written" in said


def test_a_full_disk_leaves_the_last_checkpoints(world: World) -> None:
    run = world.copy("run")
    shutil.rmtree(run / "checkpoints" / "step-4")
    before = contents(run / "checkpoints")
    with files_of_at_most(20_000):
        said = refused("train", "-q", "--data", world.made / "data", "--out", run)
    assert said.startswith(f"{run}/checkpoints/step-4: cannot write: ")
    assert "nothing is left half-written" in said
    assert contents(run / "checkpoints") == before
    result = regard("train", "-q", "--data", world.made / "data", "--out", run)
    assert result.status == 0, result


def test_average_replaces_nothing(world: World) -> None:
    model = world.copy("model")
    with unchanged(world.folder):
        said = refused("average", world.made / "run", "--last", "2", "--out", model)
    assert said == f"{model}: exists already: name a new directory"


def test_prepare_replaces_nothing_but_prepared_data(world: World) -> None:
    (world.folder / "out").mkdir()
    world.write("out/precious.txt", "mine\n")
    with unchanged(world.folder):
        said = refused("prepare", *world.text, *world.out)
    assert said.endswith("is not empty, and not prepared data to replace: choose another --out")


def test_closed_streams(world: World) -> None:
    """As a daemon may leave them: no input is empty input, and no output is refused."""
    argv = [sys.executable, "-m", "regard", "translate", world.made / "model"]
    ended = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *argv], capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    ended = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *argv], input=b"a dog\n", stderr=subprocess.PIPE
    )
    assert ended.returncode == 2
    assert ended.stderr.startswith(b"regard: standard output is closed: ")


def test_an_interrupt_while_it_is_loaded() -> None:
    """Ctrl-C in the first tenths of a second, in the midst of an import."""
    program = (
        "import builtins, sys\n"
        "plain = builtins.__import__\n"
        "def interrupted(name, *others):\n"
        "    if name == 'typer':\n"
        "        raise KeyboardInterrupt\n"
        "    return plain(name, *others)\n"
        "builtins.__import__ = interrupted\n"
        "from regard.__main__ import run\n"
        "run()\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True)
    assert (ended.returncode, ended.stderr) == (130, b"regard: interrupted\n")
