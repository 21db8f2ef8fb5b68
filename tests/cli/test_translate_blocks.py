"""`regard translate` writes the same by blocks, copies and processes, and however often stopped."""

import gzip
import os
import random
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.refusing import GOOD, World, contents, forked, refused, unchanged
from cli.translating import BLOCK, LINES, finished
from machine.ended import assert_gone
from regard.cli.bulk import stopped_by_signals
from regard.cli.main import main
from regard.machine.copies import can_be_copied
from regard.text.foreign.library import _guarded
from run.killing import Fork

COUNT = 2_560


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines of all sizes, blank ones too."""
    draw = random.Random(5)
    words = ["the", "dog", "cat", "house", "tree", "bird", "sees", "likes", "hears"]
    lines = [" ".join(draw.choices(words, k=draw.randint(0, 4))) for _ in range(COUNT)]
    path = tmp_path_factory.mktemp("text") / "in.txt"
    path.write_text("\n".join(lines), "utf-8")
    return path


@pytest.fixture(scope="module")
def plain(text: Path, made: Path) -> str:
    """What `regard translate` says of it on standard output."""
    result = forked("translate", made / "model", "-i", text, *BLOCK)
    assert result.stdout.count("\n") == COUNT
    return result.stdout


def arguments(text: Path, world: World) -> list[str]:
    paths = map(str, (world.made / "model", "-i", text, "--out", world.folder / "out"))
    return ["translate", *paths, *BLOCK, "--threads", "1"]


def be(arguments: list[str], rank: int, stderr: Path) -> None:
    """The command, in a process that has the libraries already."""
    os.environ["RANK"] = str(rank)
    with stderr.open("ab") as said:
        os.dup2(said.fileno(), 2)
    sys.argv = ["regard", *arguments]
    main()


@contextmanager
def started(arguments: list[str], stderr: Path, rank: int = 0) -> Iterator[Any]:
    """The command in another process, which is gone after the block."""
    process = Fork(target=be, args=(arguments, rank, stderr))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def be_torchrun(arguments: list[str], stderr: Path) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    with stderr.open("ab") as said:
        os.dup2(said.fileno(), 2)
    from torch.distributed.run import main

    main(["--standalone", "--nproc-per-node", "2", "-m", "regard", *arguments])


@contextmanager
def torchrun(arguments: list[str], stderr: Path) -> Iterator[Any]:
    """Two new processes, which torchrun starts as it does for users."""
    running = Fork(target=be_torchrun, args=(arguments, stderr))
    running.start()
    try:
        yield running
    finally:
        running.terminate()  # and so what it has started
        running.join()


def ranks(running: Fork) -> list[int]:
    """The processes that torchrun has started."""
    tasks = Path(f"/proc/{running.pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


def wait_for_blocks(more: int, out: Path, is_running: Callable[[], bool]) -> None:
    wanted, deadline = finished(out) + more, time.monotonic() + 120
    while finished(out) < wanted:
        assert is_running()
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize(
    "options",
    [[], ["--n-best", "2"], ["--json"], ["--beam", "1", "--alpha", "0", "--precision", "auto"]],
    ids=" ".join,
)
def test_a_file_is_what_standard_output_would_be(
    world: World, text: Path, options: list[str]
) -> None:
    some = text.read_bytes().splitlines(keepends=True)[: 2 * 64 + 7]
    packed = world.write("in.gz", gzip.compress(b"".join(some)))
    command = [
        "translate",
        world.made / "model",
        "-i",
        packed,
        "--window",
        "64",
        "--no-retry",
        *options,
    ]
    expected = forked(*command)
    result = forked(*command, "--out", world.folder / "new" / "out")
    assert (result.status, result.stdout) == (0, "")
    assert (world.folder / "new" / "out").read_text("utf-8") == expected.stdout
    assert contents(world.folder / "new").keys() == {"out"}
    assert re.search(
        r"135 of 135 lines  [\d,.]+ lines/s  [\d,]+ source tokens/s  0:00:00 left\n$", result.stderr
    )


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_exactly_the_same_in_other_company(world: World, text: Path, precision: str) -> None:
    lines = text.read_bytes().splitlines(keepends=True)[:60]
    command = ["translate", world.made / "model", "--exact", "--json", "--precision", precision]
    together = forked(*command, stdin=b"".join(lines)).stdout.splitlines()
    backwards = forked(*command, "--window", "7", stdin=b"".join(lines[::-1])).stdout.splitlines()
    assert backwards[::-1] == together
    assert len(set(together)) > 30


def test_models_translate_together(made: Path, text: Path) -> None:
    model, some = made / "model", b"".join(text.read_bytes().splitlines(keepends=True)[:50])
    alone = forked("translate", model, *BLOCK, stdin=some)
    assert alone.stdout.count("\n") == 50, alone.stderr
    assert forked("translate", model, model, *BLOCK, stdin=some) == alone


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def copies_of(pid: int, is_running: Callable[[], bool]) -> list[int]:
    """The copies with which it translates, once they are there."""
    while len(copies := children(pid)) < 2:
        assert is_running()
        time.sleep(0.005)
    return copies


def be_a_group(arguments: list[str], stdout: Path, stderr: Path) -> None:
    """The command, in a group of processes of its own, as a shell starts it."""
    os.setsid()
    with stdout.open("wb") as written:
        os.dup2(written.fileno(), 1)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    be(arguments, 0, stderr)


@pytest.mark.slow
@pytest.mark.skipif(not can_be_copied(), reason="not on this system")
def test_a_long_text_is_translated_by_copies_which_end_with_the_command(
    text: Path, made: Path, plain: str, tmp_path: Path
) -> None:
    # Nothing that this model writes looks right, so that it would be searched for again.
    command = ["translate", str(made / "model"), "-i", str(text), "--no-retry", "--threads", "2"]
    for signum, status in ((0, 0), (signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        files = tmp_path / f"{status} out", tmp_path / f"{status} said"
        process = Fork(target=be_a_group, args=(command, *files))
        process.start()
        try:
            copies = copies_of(process.pid, process.is_alive)
            os.killpg(process.pid, signum)  # 0 is sent to nobody
            process.join(60)
        finally:
            process.kill()
        assert process.exitcode == status
        assert files[1].read_text() == ("regard: interrupted\n" if signum == signal.SIGINT else "")
        written = files[0].read_text("utf-8")
        assert plain.startswith(written) if signum else written == plain
        assert_gone(copies)


def test_a_signal_stops_and_the_same_command_goes_on(world: World, text: Path, plain: str) -> None:
    out, stderr = world.folder / "out", world.folder / "stderr"
    for name, status in (("INT", 130), ("TERM", 143), ("HUP", 129), ("KILL", -9)):
        with started(arguments(text, world), stderr) as process:
            wait_for_blocks(1, out, process.is_alive)
            os.kill(process.pid, signal.Signals[f"SIG{name}"])
            process.join(60)
            assert process.exitcode == status
        assert not out.exists()
        if status > 0:
            lines = f"{finished(out) * LINES:,} of {COUNT:,} lines finished"
            assert stderr.read_text().endswith(
                f"{out}: stopped with {lines}, which are kept; "
                "the same command continues from them\n"
            )
    before = finished(out)
    assert 4 <= before < COUNT // LINES
    result = forked(*arguments(text, world))
    assert result.status == 0, result
    assert result.stderr.startswith(f"{before * LINES:,} of {COUNT:,} lines\n")
    assert out.read_text("utf-8") == plain


def test_a_signal_is_not_taken_for_an_error_of_a_library() -> None:
    with pytest.raises(SystemExit) as stopped, stopped_by_signals():
        _guarded(signal.raise_signal, signal.SIGTERM)
    assert stopped.value.code == 143


@pytest.mark.slow
def test_what_two_processes_began_one_or_three_go_on_with(
    world: World, text: Path, plain: str
) -> None:
    out, said = world.folder / "out", world.folder / "stderr"
    with torchrun(arguments(text, world), said) as running:
        wait_for_blocks(3, out, running.is_alive)
        os.kill(ranks(running)[0], signal.SIGKILL)
        running.join(60)
        assert running.exitcode not in (None, 0)
    said.unlink()
    assert finished(out) >= 3
    assert not out.exists()
    shutil.copytree(world.folder / ".out.parts", world.folder / "again" / ".out.parts")

    result = forked(*arguments(text, world), "--quiet")
    assert (result.status, result.stderr) == (0, "")
    assert out.read_text("utf-8") == plain

    again = World(world.folder / "again", world.made)
    with ExitStack() as stack:
        for process in [
            stack.enter_context(started(arguments(text, again), said, rank)) for rank in range(3)
        ]:
            process.join(60)
            assert process.exitcode == 0
    assert said.read_text().count("0:00:00 left") == 1  # one of them speaks
    assert (again.folder / "out").read_text("utf-8") == plain
    assert contents(again.folder).keys() == {"out"}


def test_processes_refuse_in_one_sentence(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    bad = world.write("bad.txt", GOOD.encode() * 300 + b"M\xfcller\n")
    stderr = tmp_path_factory.mktemp("said") / "stderr"
    command = arguments(bad, world)
    with (
        unchanged(world.folder),
        started(command, stderr, rank=1) as second,
        started(command, stderr, rank=0) as first,
    ):
        first.join(60)
        assert first.exitcode == 2
        second.join(0.5)  # so long torchrun may take to notice, before it ends the others
        assert second.exitcode is None
        second.terminate()
        second.join(60)
        assert second.exitcode not in (None, 0)
    said = stderr.read_text()
    assert said.count("regard: ") == 1
    assert f"regard: {bad}:301: is not UTF-8 (byte 0xFC at byte 2 of the line)" in said


def test_a_process_leaves_it_to_the_first_to_say_what_is_wrong(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    argv = ["translate", world.folder / "none", "-i", world.folder / "source.en", "--out", "out"]
    said = refused(*argv)
    assert not waited
    monkeypatch.setenv("RANK", "1")
    assert refused(*argv) == said
    assert waited == [3.0]


def test_standard_output_is_for_one_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = refused("translate", world.made / "model", stdin=GOOD.encode())
    assert said == "several processes cannot share standard output: give --out"
