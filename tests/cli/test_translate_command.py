"""`regard translate` as users run it on files: stopped, shared and refused."""

import gzip
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.refusing import GOOD, World, contents, forked, refused, regard, unchanged
from cli.test_refused_places import NOWHERE
from files.limits import files_of_at_most
from machine.ended import assert_gone
from regard.cli.main import main
from regard.cli.translating import ParagraphLines
from regard.machine.copies import can_be_copied
from regard.translation import Translation, Translator
from run.killing import PROCESSES
from serve.conftest import Shouting

COUNT = 3_072
LINES = 256
"""Lines of a block."""
BLOCK = ["--window", str(LINES), "--no-retry"]
"""Without a second search, which most translations of this model would need."""


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
    process = PROCESSES.Process(target=be, args=(arguments, rank, stderr))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


@contextmanager
def torchrun(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Two processes, as users start them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "regard", *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.terminate()  # and so what it has started


def ranks(running: subprocess.Popen[str]) -> list[int]:
    """The processes that torchrun has started."""
    tasks = Path(f"/proc/{running.pid}/task").glob("*/children")
    return sorted(int(child) for task in tasks for child in task.read_text().split())


def finished(out: Path) -> int:
    """How many blocks are finished."""
    return sum(1 for path in out.with_name(f".{out.name}.parts").glob("[0-9]*"))


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
    some = text.read_bytes().splitlines(keepends=True)[: 2 * LINES + 7]
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
        r"519 of 519 lines  [\d,.]+ lines/s  [\d,]+ source tokens/s  0:00:00 left\n$", result.stderr
    )


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_exactly_the_same_in_other_company(world: World, text: Path, precision: str) -> None:
    lines = text.read_bytes().splitlines(keepends=True)[:60]
    command = ["translate", world.made / "model", "--exact", "--json", "--precision", precision]
    together = forked(*command, stdin=b"".join(lines)).stdout.splitlines()
    backwards = forked(*command, "--window", "7", stdin=b"".join(lines[::-1])).stdout.splitlines()
    assert backwards[::-1] == together
    assert len(set(together)) > 30


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
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        copies = copies_of(running.pid, lambda: running.poll() is None)
        out, said = running.communicate(timeout=60)
    assert (running.returncode, said, out) == (0, "", plain)
    assert_gone(copies)
    for signum, status in ((signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)):
        files = tmp_path / f"{status} out", tmp_path / f"{status} said"
        process = PROCESSES.Process(target=be_a_group, args=(command, *files))
        process.start()
        try:
            copies = copies_of(process.pid, process.is_alive)
            os.killpg(process.pid, signum)
            process.join(60)
        finally:
            process.kill()
        assert process.exitcode == status
        assert files[1].read_text() == ("regard: interrupted\n" if signum == signal.SIGINT else "")
        assert plain.startswith(files[0].read_text("utf-8"))
        assert_gone(copies)


def test_a_signal_stops_and_the_same_command_goes_on(world: World, text: Path, plain: str) -> None:
    out, stderr = world.folder / "out", world.folder / "stderr"
    for signum, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
        with started(arguments(text, world), stderr) as process:
            wait_for_blocks(2, out, process.is_alive)
            os.kill(process.pid, signum)
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
    assert 6 <= before < COUNT // LINES
    result = forked(*arguments(text, world))
    assert result.status == 0, result
    assert result.stderr.startswith(f"{before * LINES:,} of {COUNT:,} lines\n")
    assert out.read_text("utf-8") == plain


@pytest.mark.slow
def test_what_two_processes_began_one_or_three_go_on_with(
    world: World, text: Path, plain: str
) -> None:
    out = world.folder / "out"
    with torchrun(arguments(text, world)) as running:
        wait_for_blocks(3, out, lambda: running.poll() is None)
        os.kill(ranks(running)[0], signal.SIGKILL)
        assert running.wait(60) != 0
    assert finished(out) >= 3
    assert not out.exists()
    shutil.copytree(world.folder / ".out.parts", world.folder / "again" / ".out.parts")

    result = forked(*arguments(text, world), "--quiet")
    assert (result.status, result.stderr) == (0, "")
    assert out.read_text("utf-8") == plain

    again, said = World(world.folder / "again", world.made), world.folder / "stderr"
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


@pytest.fixture
def command(world: World) -> list[str | Path]:
    return ["translate", world.made / "model", "-i", world.folder / "source.en", "--quiet"]


def test_a_line_that_is_too_long_is_refused_before_the_first_is_translated(
    world: World, command: list[str | Path]
) -> None:
    text = world.write("long.en", GOOD * 600 + "the dog " * 40 + "\n")
    command[3] = text
    with unchanged(world.folder):
        said = refused(*command, *BLOCK, "--long", "refuse", "--out", world.folder / "out")
    problem = re.escape(f"{text}:601: ") + r"\d+ pieces; this model was trained on at most 24: "
    assert re.match(problem, said)
    result = regard(*command, *BLOCK, "--out", world.folder / "out")
    assert result.status == 0
    assert len(re.findall(problem + "it is translated in parts, as other", result.stderr)) == 1
    assert "--long long: it is split or refuse" in refused(*command, "--long", "long")


def test_longer_translates_a_long_line_whole(world: World, command: list[str | Path]) -> None:
    command[3] = world.write("long.en", "the dog " * 40 + "\n")
    result = regard(*command, "--beam", "1", "--longer")
    assert (result.status, len(result.stdout.splitlines())) == (0, 1)
    assert "parts" not in result.stderr
    out = world.folder / "longer.txt"
    assert regard(*command, "--beam", "1", "--longer", "--out", out).status == 0
    assert out.read_text("utf-8") == result.stdout
    said = refused(*command, "--beam", "1", "--out", out)  # the same file, by other settings
    assert "longer" in said or "exists" in said


def test_a_stream_cannot_be_translated_in_blocks(world: World) -> None:
    with unchanged(world.folder):
        said = refused(
            *("translate", world.made / "model", "--out", world.folder / "out"), stdin=GOOD.encode()
        )
    assert said == "standard input: is read more than once here: save it in a file first"


def test_where_no_output_can_be_made(world: World, command: list[str | Path]) -> None:
    (world.folder / "folder").mkdir()
    mine = world.write("mine", "mine\n")
    for out, why in (
        *(
            (out, f"--out {out}: it names a file to make; leave it out for standard output")
            for out in ("-", ".", "/")
        ),
        (mine, f"{mine}: exists already: remove it, or choose another --out"),
        (world.folder / "folder", f"{world.folder}/folder: exists already: remove it, or choose"),
        (mine / "out", f"{mine}/.out.parts"),
        (NOWHERE, "/proc/self/.nowhere.parts: cannot write: No such file or directory"),
        (world.folder / ("x" * 255), "File name too long"),
    ):
        with unchanged(world.folder):
            assert why in refused(*command, "--out", out)


@pytest.mark.parametrize("room", [0, 300, 3000])
def test_a_full_disk_leaves_what_was_finished(
    world: World, command: list[str | Path], room: int
) -> None:
    out = world.folder / "out"
    command[3] = world.write("in.txt", GOOD * 300 + "\n" * 300 + GOOD)
    expected = forked(*command, "--window", "300")
    with files_of_at_most(room):
        said = refused(*command, "--window", "300", "--out", out)
    assert "cannot write: File too large" in said
    assert not out.exists()
    assert forked(*command, "--window", "300", "--out", out).status == 0
    assert out.read_text("utf-8") == expected.stdout


@pytest.mark.parametrize(
    ("options", "change"),
    [
        (["--beam", "1"], "beam 2 there, 1 here"),
        (["--alpha", "1"], "alpha 0.6 there, 1.0 here"),
        (["--n-best", "2"], "n-best 1 there, 2 here"),
        (["--json"], "json False there, True here"),
        (["--long", "refuse"], "split True there, False here"),
        (["--precision", "bf16"], "precision fp32 there, bf16 here"),
        (["--window", "19"], "window 2048 there, 19 here; lines a block 2048 there, 266 here"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_another_setting_does_not_go_on(
    begun: World, command: list[str | Path], options: list[str], change: str
) -> None:
    with unchanged(begun.folder):
        said = refused(*command, *options, "--out", begun.folder / "out")
    assert said.startswith(f"{begun.folder}/out: was begun otherwise ({change}): give what it was ")


def test_another_model_does_not_go_on(begun: World, command: list[str | Path]) -> None:
    command[1] = begun.folder / "model"
    regard("average", begun.made / "run", "--last", "1", "--out", command[1])
    with unchanged(begun.folder):
        said = refused(*command, "--out", begun.folder / "out")
    assert re.search(r"\(model [0-9a-f]{12} there, [0-9a-f]{12} here\): ", said)


@pytest.fixture
def begun(world: World, command: list[str | Path]) -> World:
    """Where blocks have been begun and none is finished."""
    with files_of_at_most(800):
        refused(*command, "--out", world.folder / "out")
    assert finished(world.folder / "out") == 0
    assert (world.folder / ".out.parts" / "manifest.json").exists()
    return world


def test_what_looks_wrong_is_searched_for_again_and_counted(made: Path, tmp_path: Path) -> None:
    """The model has hardly learned anything, so some of its translations look wrong."""
    lines = [*GOOD.splitlines(), "", *(f"the {n} dogs see the {n} cats" for n in range(40))]
    text = tmp_path / "in.txt"
    text.write_text("\n".join(lines), "utf-8")
    result = forked("translate", made / "model", "-i", text, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    retried = sum(line["retried"] for line in found)
    wrong = [line["flaws"] for line in found if line["flaws"]]
    assert retried > 0
    sentences = "1 sentence was" if retried == 1 else f"{retried} sentences were"
    look = "1 looks" if len(wrong) == 1 else f"{len(wrong)} look"
    said = f"{sentences} searched for again; {look} wrong"
    assert result.stderr.count(said) == 1
    plain = forked("translate", made / "model", "-i", text, "--json", "--no-retry")
    first = [json.loads(line) for line in plain.stdout.splitlines()]
    assert "searched" not in plain.stderr
    for one, other in zip(found, first, strict=True):
        assert (other["flaws"], other["retried"]) == ([], False)
        if not one["retried"]:
            assert one == other


def test_models_translate_together(made: Path, text: Path) -> None:
    model, some = made / "model", b"".join(text.read_bytes().splitlines(keepends=True)[:50])
    alone = forked("translate", model, *BLOCK, stdin=some)
    assert alone.stdout.count("\n") == 50, alone.stderr
    assert forked("translate", model, model, *BLOCK, stdin=some) == alone


def test_lines_of_several_sentences(made: Path) -> None:
    """Each sentence is translated as if it stood alone; what stands between them is kept."""
    text = "The dog sees. The cat likes!\n\n- the bird\n12\n"
    options = ["--paragraphs", "en", "--no-retry"]
    plain = forked("translate", made / "model", *options, stdin=text.encode())
    assert plain.status == 0, plain.stderr
    alone = forked(
        "translate", made / "model", "--no-retry", stdin=b"The dog sees.\nThe cat likes!\nthe bird"
    )
    first, second, third = alone.stdout.splitlines()
    assert plain.stdout == f"{first} {second}\n\n- {third}\n12\n"
    shown = forked("translate", made / "model", *options, "--json", stdin=text.encode())
    facts = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [fact["text"] for fact in facts] == plain.stdout.splitlines()
    assert [one["source"] for one in facts[0]["sentences"]] == ["The dog sees.", "The cat likes!"]
    assert facts[1]["sentences"] == facts[3]["sentences"] == []


def test_each_sentence_of_a_paragraph_gets_the_code_of_its_line() -> None:
    translator = Shouting()
    lines = ParagraphLines(translator, Path("-"), 1, False, True, False, False, 9, "en")
    written = lines.translated([">>de<< The dog. A cat.", "A bird."])
    assert list(written) == [">>DE<<THE DOG. >>DE<<A CAT.", "A BIRD."]


def test_paragraphs_in_a_file_are_those_of_standard_output(world: World) -> None:
    text = world.write("in.txt", "The dog sees. The cat likes!\n\nthe bird\n" * 99)
    command = ["translate", world.made / "model", "-i", text, "--paragraphs", "en", "--no-retry"]
    expected = forked(*command).stdout
    assert forked(*command, "--out", world.folder / "out", "-q").status == 0
    assert (world.folder / "out").read_text("utf-8") == expected
    said = refused(*command, "--n-best", "2")
    assert said == "--paragraphs writes one translation of a line: leave out --n-best"
    assert "give the code of a language" in refused(*command, "--paragraphs", "English")
    assert "the code of Korean is ko" in refused(*command, "--paragraphs", "kr")


def test_a_sentence_of_a_paragraph_is_named_by_its_line(world: World) -> None:
    text = world.write("in.txt", "The dog. The cat. A bird.\n\nThe house. " + "the dog " * 40)
    command = ["translate", world.made / "model", "-i", text, "--paragraphs", "en", "--no-retry"]
    for more in ([], ["--window", "2"], ["--out", world.folder / "out"]):
        assert refused(*command, "--long", "refuse", *more).startswith(f"{text}:3: ")


def test_escape_sequences_stay_in_translations(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [Translation("\x1b[31mHund", 0.0)]
    monkeypatch.setattr(Translator, "texts", lambda *_: written)
    result = regard("translate", world.made / "model", "--no-retry", stdin=GOOD.encode())
    assert result.stdout == "\x1b[31mHund\n"


def test_word_alignments(made: Path) -> None:
    """Each word of the translation is there once, and the words are those between blanks."""
    text = "the dog sees the cat.\n\nthe bird likes the house\n"
    command = ["translate", made / "model", "--alignments", "--no-retry", "--beam", "1"]
    shown = forked(*command, stdin=text.encode()).stdout.split("\n")[:-1]
    facts = forked(*command, "--json", stdin=text.encode()).stdout.splitlines()
    for source, line, fact in zip(text.split("\n"), shown, facts, strict=False):
        written, _, pairs = line.partition(" ||| ")
        assert json.loads(fact)["alignment"] == pairs
        places = [tuple(map(int, pair.split("-"))) for pair in pairs.split()]
        words = len(written.split(" ")) if source else 0
        assert sorted(target for _, target in places) == list(range(words))
        assert all(0 <= place < len(source.split()) for place, _ in places)
        assert places == sorted(places)
        assert bool(places) == bool(source)
    said = refused(*command, "--n-best", "2")
    assert said == "--alignments are of single sentences: leave out --paragraphs, --n-best"
