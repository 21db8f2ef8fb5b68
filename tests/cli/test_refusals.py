"""Bad input gets one sentence with its remedy and exit status 2, and changes nothing on disk.

Each test spoils one thing in a folder of its own, runs a command, and compares the folder with what
it was before.
"""

import errno
import fcntl
import gzip
import io
import json
import lzma
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import zstandard
from safetensors.torch import load_file, save_file

from regard.cli.main import main
from regard.run.files import seal

TINY = [
    argument
    for assignment in (
        *("model.layers=1", "model.d_model=16", "model.d_ff=32", "model.heads=2"),
        *("tokenizer.vocabulary=300", "data.max_length=24", "data.source_tokens=300"),
        *("data.target_tokens=300", "search.beam=2", "search.max_extra=3"),
        *("training.steps=4", "training.save_every=1", "training.save_minutes=0.0"),
        *("training.keep=3", "training.average=2", "training.precision=fp32"),
        "training.validate_sentences=2",
    )
    for argument in ("--set", assignment)
]
PARTS = ("recipe.toml", "tokenizer.json", "model.safetensors")
NOWHERE = "/proc/self/nowhere"  # not even root can write there


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
    def out(self) -> list[str | Path]:
        return ["-q", "--out", self.folder / "out"]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 75 pairs, prepared; a run of four steps, with checkpoints 2, 3 and 4; a model."""
    folder = tmp_path_factory.mktemp("made")
    nouns = {"dog": "Hund", "cat": "Katze", "house": "Haus", "tree": "Baum", "bird": "Vogel"}
    verbs = {"sees": "sieht", "likes": "mag", "hears": "hört"}
    triples = [(one, verb, other) for one in nouns for verb in verbs for other in nouns]
    english = [f"the {one} {verb} the {other}" for one, verb, other in triples]
    german = [f"{nouns[one]} {verbs[verb]} {nouns[other]}" for one, verb, other in triples]
    (folder / "source.en").write_text("".join(f"{line}\n" for line in english), "utf-8")
    (folder / "target.de").write_text("".join(f"{line}\n" for line in german), "utf-8")
    world = World(folder, folder)
    for argv in (
        ["prepare", "-q", *world.text, "--out", folder / "data", "--recipe", "base", *TINY],
        ["train", "-q", "--data", folder / "data", "--recipe", "base", *TINY]
        + ["--out", folder / "run"],
        ["average", folder / "run", "--last", "2", "--out", folder / "model"],
    ):
        result = regard(*argv)
        assert result.status == 0, result
    return folder


@pytest.fixture
def world(made: Path, tmp_path: Path) -> World:
    for name in ("source.en", "target.de"):
        shutil.copy(made / name, tmp_path)
    return World(tmp_path, made)


# Text ---------------------------------------------------------------------------------------------

GOOD = "the dog sees the cat\n"


def _packed(pack: Callable[[bytes], bytes], spoil: Callable[[bytes], bytes]) -> bytes:
    return spoil(pack("".join(f"the dog sees {n} cats\n" for n in range(2000)).encode()))


def _middle_flipped(packed: bytes) -> bytes:
    middle = len(packed) // 2
    return packed[:middle] + bytes(b ^ 0xFF for b in packed[middle : middle + 16]) + packed[-400:]


TEXT: dict[str, tuple[bytes | None, int | None, str]] = {
    # content (None: there is no such file), the line at fault, the remedy or what is wrong
    "missing": (None, None, "no such file"),
    "binary": (GOOD.encode() * 2 + b"\x00\x01\x02\n", 3, "give UTF-8 text"),
    "UTF-16": (GOOD.encode("utf-16"), 1, "iconv"),
    "not UTF-8": (GOOD.encode() * 6 + b"M\xfcller\n" + GOOD.encode(), 7, "convert it"),
    "a lone surrogate": (GOOD.encode() * 4 + b"\xed\xa0\x80\n", 5, "convert it"),
    "cut inside a character": (GOOD.encode() + b"caf\xc3", 2, "mend the line"),
    "a line without end": (b"x" * (4 * 2**20 + 1), 1, "one sentence a line"),
    "a truncated gz": (_packed(gzip.compress, lambda b: b[:-20]), None, "copy it again"),
    "a truncated xz": (_packed(lzma.compress, lambda b: b[:-20]), None, "copy it again"),
    "a truncated zst": (
        _packed(zstandard.ZstdCompressor().compress, lambda b: b[:-20]),
        None,
        "copy it again",
    ),
    "a corrupt gz": (_packed(gzip.compress, _middle_flipped), None, "copy it again"),
    "a corrupt xz": (_packed(lzma.compress, _middle_flipped), None, "copy it again"),
}
READERS: dict[str, Callable[[World, Path], list[str | Path]]] = {
    "prepare --source": lambda w, bad: ["prepare", "--source", bad, *w.text[2:], *w.out],
    "prepare --target": lambda w, bad: ["prepare", *w.text[:2], "--target", bad, *w.out],
    "train --source": lambda w, bad: ["train", "--source", bad, *w.text[2:], *w.out],
    "prepare --valid-target": lambda w, bad: [
        *("prepare", *w.text, "--valid-source", w.text[1], "--valid-target", bad, *w.out),
    ],
    "translate": lambda w, bad: ["translate", w.made / "model", "-i", bad],
    "score": lambda w, bad: ["score", bad, "-r", w.text[1]],
    "score --reference": lambda w, bad: ["score", w.text[1], "-r", bad],
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("text", TEXT)
def test_text_that_cannot_be_read_is_refused_by_file_and_line(
    world: World, text: str, reader: str
) -> None:
    content, line, remedy = TEXT[text]
    bad = world.folder / "bad.txt"
    if content is not None:
        bad.write_bytes(content)
    with unchanged(world.folder):
        said = refused(*READERS[reader](world, bad))
    assert said.startswith(f"{bad}:{line}: " if line else f"{bad}: ")
    assert remedy in said


@pytest.mark.parametrize("reader", READERS)
def test_a_folder_in_the_place_of_a_file(world: World, reader: str) -> None:
    (world.folder / "folder").mkdir()
    with unchanged(world.folder):
        said = refused(*READERS[reader](world, world.folder / "folder"))
    assert said == f"{world.folder / 'folder'}: is a directory: name the text file inside it"


def test_bad_text_on_standard_input_is_named_so(world: World) -> None:
    said = refused("translate", world.made / "model", stdin=GOOD.encode() + b"\xff\n")
    assert said.startswith("standard input:2: is not UTF-8 (byte 0xFF at byte 1 of the line)")


UNUSABLE: dict[str, tuple[bytes, bytes, str, str]] = {
    # source, target, the place, the remedy
    "empty": (b"", b"", "bad.source: ", "give text"),
    "one side empty": (GOOD.encode() * 3, b"", "bad.target: ", "find where they part"),
    "target shorter": (GOOD.encode() * 5, GOOD.encode() * 3, "bad.target:3: ", "find where"),
    "source shorter": (GOOD.encode() * 3, GOOD.encode() * 5, "bad.source:3: ", "find where"),
    "blank lines alone": (b" \n" * 31, b"\n" * 31, "bad.source: ", "give at least ten"),
    "all too long": (
        (b"x" * 2000 + b"\n") * 31,
        (b"x" * 2000 + b"\n") * 31,
        "bad.source: ",
        "give at least ten",
    ),
    "nine pairs": (GOOD.encode() * 9, GOOD.encode() * 9, "bad.source: ", "give at least ten"),
}


@pytest.mark.parametrize("command", ["prepare", "train"])
@pytest.mark.parametrize("text", UNUSABLE)
def test_a_corpus_that_leaves_nothing(world: World, text: str, command: str) -> None:
    source, target, place, remedy = UNUSABLE[text]
    files = ["--source", world.write("bad.source", source)]
    files += ["--target", world.write("bad.target", target)]
    with unchanged(world.folder):
        said = refused(command, *files, *world.out, "--recipe", "base", *TINY)
    assert said.startswith(f"{world.folder}/{place}")
    assert remedy in said


def test_all_pairs_too_long_in_pieces_alone(world: World) -> None:
    source = world.write("bad.source", "qz vx jk wq zv xj kq wz qx vj\n" * 41)
    target = world.write("bad.target", "qz vx jk wq zv xj kq wz qx vj\n" * 41)
    with unchanged(world.folder):
        said = refused(
            *("prepare", "--source", source, "--target", target, *world.out),
            *("--recipe", "base", *TINY, "--set", "data.max_length=3"),
        )
    assert said.startswith(f"{source}: no pair is left")
    assert "loosen data.max_length" in said


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--source", "source.en"], "2 source files but 1 target files: give them in pairs"),
        (["--valid-source", "source.en"], "1 source files but 0 target files: give them in pairs"),
    ],
)
def test_files_without_counterpart(world: World, more: list[str], said: str) -> None:
    with pytest.MonkeyPatch.context() as patch, unchanged(world.folder):
        patch.chdir(world.folder)
        assert refused("prepare", *world.text, *more, *world.out) == said


def test_a_pipe_cannot_be_read_thrice(world: World) -> None:
    os.mkfifo(world.folder / "pipe")
    writer = os.open(world.folder / "pipe", os.O_RDWR)
    try:
        said = refused("prepare", "--source", world.folder / "pipe", *world.text[2:], *world.out)
    finally:
        os.close(writer)
    assert said == f"{world.folder / 'pipe'}: is read more than once here: save it in a regular " + (
        "file first"
    )


def test_standard_input_cannot_be_read_thrice(world: World) -> None:
    said = refused("train", "--source", "-", *world.text[2:], *world.out, stdin=GOOD.encode())
    assert said == "standard input: is read more than once here: save it in a file first"


LONG = "the dog sees the cat, " * 4545 + "the bird"  # 99,998 characters


def test_a_line_of_100_000_characters_is_refused_by_name(world: World) -> None:
    text = world.write("long.en", f"{GOOD}{GOOD}{LONG}\n")
    said = refused("translate", world.made / "model", "-i", text)
    assert re.match(re.escape(f"{text}:3: ") + r"\d+ pieces; this model was .* at most 24: ", said)
    assert "--split" in said


def test_a_line_of_100_000_characters_is_split_when_asked(world: World) -> None:
    argv = ["translate", world.made / "model", "--split", "--beam", "1"]
    result = regard(*argv, stdin=f"{GOOD}{LONG[:20_000]}\n{GOOD}".encode())
    assert (result.status, result.stderr) == (0, "")
    lines = result.stdout.split("\n")
    assert len(lines) == 4
    assert lines[0] == lines[2]


def test_a_line_of_100_000_characters_is_dropped_from_training_and_counted(world: World) -> None:
    for name in ("source.en", "target.de"):
        with (world.folder / name).open("a") as file:
            file.write(LONG + "\n")
    result = regard("prepare", *world.text, *world.out, "--recipe", "base", *TINY)
    assert result.status == 0
    assert "1 too long" in result.stdout


# The command line ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("tran", "unknown command tran: did you mean train?"),
        ("Translate", "unknown command Translate: did you mean translate?"),
        ("--out runs/x train", "unknown option --out: did you mean --help?"),
        ("train --otu runs/x", "unknown option --otu: did you mean --out?"),
        ("train", "missing option --out: see regard train --help"),
        ("prepare --out x --target y", "missing option --source: see regard prepare --help"),
        ("score x", "missing option --reference / -r: see regard score --help"),
        ("translate", "missing argument model: see regard translate --help"),
        ("average run --out", "option --out requires an argument: see regard --help"),
        ("translate one two", "got unexpected extra argument(s) (two): see regard translate"),
        ("translate run --beam 0", "invalid value for --beam: "),
        ("translate run --beam many", "invalid value for --beam: "),
        ("translate run --beam 2.5", "invalid value for --beam: "),
        ("translate run --n-best 0", "invalid value for --n-best: "),
        ("translate run --alpha -1", "invalid value for --alpha: "),
        ("translate run --alpha nan", "invalid value for --alpha: "),
        ("translate run --threads -3", "invalid value for --threads: "),
        ("translate run --precision fp64", "--precision fp64: it is fp32, bf16 or auto"),
        ("average run --out x --last 0", "invalid value for --last: "),
        ("demo --pairs 7", "invalid value for --pairs: "),
        ("score - -r -", "standard input: can be read only once: save it in a file first"),
        ("train --out runs/x", "runs/x: nothing to train on yet: give --source and --target"),
        ("train --out runs/x --source a", "runs/x: nothing to train on yet: give --source and"),
    ],
)
def test_a_command_line_that_cannot_be_understood(world: World, argv: str, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch, unchanged(world.folder):
        patch.chdir(world.folder)
        assert said in refused(*argv.split())


@pytest.mark.parametrize("option", ["--beam", "--n-best"])
def test_more_translations_than_hypotheses(world: World, option: str) -> None:
    more = ["--n-best", "3"] if option == "--n-best" else ["--beam", "1", "--n-best", "2"]
    said = refused("translate", world.made / "model", *more, stdin=GOOD.encode())
    assert re.fullmatch(r"--n-best \d is more than the beam of \d: .*--beam.*", said)


def test_a_file_name_cannot_write_to_the_terminal(world: World) -> None:
    said = refused("translate", world.made / "model", "-i", "\x1b[2Jno\nsuch\udcff")
    assert said == r"\x1b[2Jno such\udcff: no such file"


def test_prepared_data_beside_text(world: World) -> None:
    said = refused("train", "--data", world.made / "data", *world.text, *world.out)
    assert said.endswith("give --data, or --source and --target, not both")


@pytest.mark.parametrize("command", ["prepare", "train"])
@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("training.steps", "--set 'training.steps': write it as section.key=value"),
        ("steps=4", "--set 'steps=4': write it as section.key=value"),
        ("trainning.steps=4", "unknown section trainning: did you mean training?"),
        ("training.step=4", "unknown key training.step: did you mean training.steps?"),
        ("model.=4", "unknown key model.: did you mean model."),
        ("training.steps=many", "training.steps: input should be a valid integer (given: 'many')"),
        ("training.steps=4.5", "training.steps: input should be a valid integer (given: 4.5)"),
        ("training.steps=", "training.steps: input should be a valid integer (given: '')"),
        ("training.steps=0", "training.steps: input should be greater than or equal to 1"),
        ("training.steps=4\nx=1", "training.steps: input should be a valid integer"),
        ("model.layers=2147483648", "model.layers: input should be less than 2147483648"),
        ("model.d_model=17", "model.d_model: input should be a multiple of 2 (given: 17)"),
        ("model.dropout=1.0", "model.dropout: input should be less than 1 (given: 1.0)"),
        ("search.alpha=inf", "search.alpha: input should be a finite number (given: inf)"),
        ("training.epsilon=nan", "training.epsilon: input should be "),
        ("tokenizer.kind=unigram", "tokenizer.kind: input should be 'bpe' or 'wordpiece'"),
        ("tokenizer.vocabulary=7", "tokenizer.vocabulary: input should be greater than or equal"),
        ("data.deduplicate=1", "data.deduplicate: input should be a valid boolean (given: 1)"),
        ("training.keep=2", "training: keep = 2 is less than average = 5: keep at least as many"),
        ("training.steps=" + "[" * 100_000, "training.steps: input should be a valid integer"),
        ("training.seed=" + "9" * 5000, "training.seed: input should be a valid integer"),
    ],
    ids=lambda text: text[:30],
)
def test_a_setting_that_no_recipe_takes(
    world: World, assignment: str, said: str, command: str
) -> None:
    with unchanged(world.folder):
        argv = [command, *world.text, *world.out, "--recipe", "base", "--set", assignment]
        assert refused(*argv).startswith(said)


RECIPES: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "cannot read the recipe: No such file or directory"),
    "empty of sense": (b"steps 4\n", "(at line 1, column 7)"),
    "not UTF-8": (b'base = "b\xffse"\n', "a recipe is UTF-8 text"),
    "binary": (b"\x00\x01\x02", "(at line 1, column 1)"),
    "unknown base": (b'base = "bass"\n', "unknown base recipe bass: did you mean base?"),
    "base of no text": (b"base = [1]\n", "unknown base recipe [1]: did you mean "),
    "unknown section": (b"[trainning]\n", "unknown section trainning: did you mean training?"),
    "unknown key": (b"[model]\nlayer = 2\n", "unknown key model.layer: did you mean model.layers?"),
    "a key for a section": (b"model = 2\n", "model is a section: write [model] and keys under it"),
    "ill-typed": (b'[model]\nlayers = "2"\n', "model.layers: input should be a valid integer"),
    "nested too deep": (b"x = " + b"[" * 100_000, "nested too deep: a recipe is sections of keys"),
    "a huge number": (b"[model]\nlayers = " + b"9" * 5000, "integer string conversion"),
    "too few positions": (
        b'[model]\npositions = "learned"\nmax_positions = 100\n',
        "model.max_positions = 100 is less than data.max_length = 256: learn as many",
    ),
}


@pytest.mark.parametrize("command", ["prepare", "train"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_file_that_is_none(world: World, recipe: str, command: str) -> None:
    content, remedy = RECIPES[recipe]
    path = world.folder / "recipe.toml"
    if content is not None:
        path.write_bytes(content)
    with unchanged(world.folder):
        said = refused(command, *world.text, *world.out, "--recipe", path)
    assert said.startswith(f"{path}: ")
    assert remedy in said


def test_a_recipe_of_no_name(world: World) -> None:
    said = refused("train", *world.text, *world.out, "--recipe", "bsae")
    assert said == "unknown recipe bsae: did you mean base?"


# Where to write -----------------------------------------------------------------------------------

WRITERS: dict[str, Callable[[World, str | Path], list[str | Path]]] = {
    "prepare": lambda w, out: ["prepare", "-q", *w.text, "--out", out, "--recipe", "base", *TINY],
    "train": lambda w, out: [
        *("train", "-q", "--data", w.made / "data", "--out", out, "--recipe", "base", *TINY)
    ],
    "train from text": lambda w, out: ["train", "-q", *w.text, "--out", out],
    "average": lambda w, out: ["average", w.made / "run", "--last", "2", "--out", out],
    "demo": lambda _, out: ["demo", "-q", "--pairs", "1000", "--out", out],
}


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


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """No file may grow beyond `room` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [0, 300, 2000])
@pytest.mark.parametrize("writer", ["prepare", "average"])
def test_a_full_disk_leaves_nothing(world: World, writer: str, room: int) -> None:
    out = world.folder / "deep" / "out"
    with unchanged(world.folder), full_disk(room):
        said = refused(*WRITERS[writer](world, out))
    assert os.strerror(errno.EFBIG) in said
    assert "nothing is left half-written" in said


def test_a_full_disk_leaves_the_last_checkpoints(world: World) -> None:
    run = world.copy("run")
    shutil.rmtree(run / "checkpoints" / "step-4")
    before = contents(run / "checkpoints")
    with full_disk(20_000):
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


# Models -------------------------------------------------------------------------------------------


class Mark:
    """Unpickled, it leaves a file behind: whoever does that can be made to do anything."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def flip(path: Path) -> None:
    """Change one byte in the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def reseal(directory: Path, *more: str, **about: Any) -> None:
    """Make the checksums right again, as whoever means harm would."""
    manifest = json.loads((directory / "manifest.json").read_bytes())
    files = [*manifest.pop("files"), *more]
    manifest.pop("checksum")
    seal(directory, files, manifest | about)


def resealed(directory: Path, name: str, content: bytes) -> None:
    (directory / name).write_bytes(content)
    reseal(directory)


def in_toml(directory: Path, old: str, new: str) -> None:
    """Change recipe.toml, and reseal."""
    text = (directory / "recipe.toml").read_text()
    assert old in text
    resealed(directory, "recipe.toml", text.replace(old, new).encode())
    tomllib.loads(text)


def reshape(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights["embedding.tokens.weight"] = torch.zeros(300, 17)
    save_file(weights, directory / "model.safetensors")
    reseal(directory)


def without_a_weight(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    del weights["decoder.0.feed_forward.W_1.bias"]
    save_file(weights, directory / "model.safetensors")
    reseal(directory)


def not_numbers(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    weights = {name: torch.full_like(weight, torch.nan) for name, weight in weights.items()}
    save_file(weights, directory / "model.safetensors")
    reseal(directory)


def beyond_the_vocabulary(directory: Path) -> None:
    """A tokenizer, ours in all but that an id is beyond the 300 rows of the embedding."""
    content = json.loads((directory / "tokenizer.json").read_bytes())
    vocabulary = content["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.__getitem__)
    vocabulary[last] = 5000
    resealed(directory, "tokenizer.json", json.dumps(content).encode())


def outside(directory: Path) -> None:
    (directory.parent / "secret").write_text("mine")
    reseal(directory, "../secret")


MODELS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    # what is done to a model directory; the file that the sentence begins with; the remedy
    "removed": (shutil.rmtree, "", "no such model directory: name one"),
    "a file": (lambda m: (shutil.rmtree(m), m.write_text("")), "", "is a file: name the directory"),
    "empty": (lambda m: (shutil.rmtree(m), m.mkdir()), "", "no manifest.json"),
    "no manifest": (lambda m: (m / "manifest.json").unlink(), "", "copy it again"),
    "manifest a folder": (
        lambda m: ((m / "manifest.json").unlink(), (m / "manifest.json").mkdir()),
        "/manifest.json",
        "copy it again",
    ),
    "manifest empty": (
        lambda m: (m / "manifest.json").write_text(""),
        "/manifest.json",
        "copy it again",
    ),
    "manifest a list": (
        lambda m: (m / "manifest.json").write_text("[]"),
        "/manifest.json",
        "copy it again",
    ),
    "manifest binary": (
        lambda m: (m / "manifest.json").write_bytes(b"\xff\x00"),
        "/manifest.json",
        "copy it again",
    ),
    "manifest a bomb": (
        lambda m: (m / "manifest.json").write_text("[" * 10**6),
        "/manifest.json",
        "copy it again",
    ),
    "manifest a huge number": (
        lambda m: (m / "manifest.json").write_text("9" * 10**4),
        "/manifest.json",
        "copy it again",
    ),
    "manifest changed": (lambda m: flip(m / "manifest.json"), "/manifest.json", "copy it again"),
    "manifest without files": (
        lambda m: seal_bare(m, {"files": None}),
        "/manifest.json",
        "copy it again",
    ),
    "format of tomorrow": (lambda m: reseal(m, format=2), "/manifest.json", "use the version"),
    "names a file outside": (outside, "/manifest.json", "do not use this model"),
    "not a model but a checkpoint": (lambda m: seal(m, [], {}), "", "name a directory that"),
    "weights changed": (
        lambda m: flip(m / "model.safetensors"),
        "/model.safetensors",
        "copy it again",
    ),
    "weights truncated": (
        lambda m: truncate(m / "model.safetensors"),
        "/model.safetensors",
        "copy it again",
    ),
    "weights removed": (
        lambda m: (m / "model.safetensors").unlink(),
        "/model.safetensors",
        "copy it again",
    ),
    "weights truncated and resealed": (
        lambda m: (truncate(m / "model.safetensors"), reseal(m)),
        "/model.safetensors",
        "copy it again",
    ),
    "weights empty and resealed": (
        lambda m: resealed(m, "model.safetensors", b""),
        "/model.safetensors",
        "copy it again",
    ),
    "weights a header bomb": (
        lambda m: resealed(m, "model.safetensors", (2**62).to_bytes(8, "little") + b"{"),
        "/model.safetensors",
        "copy it again",
    ),
    "weights of another shape": (reshape, "", "embedding.tokens.weight is [300, 17]"),
    "a weight missing": (without_a_weight, "", "decoder.0.feed_forward.W_1.bias is missing"),
    "weights that are no numbers": (not_numbers, "the model's logits", "weights are damaged"),
    "tokenizer changed": (lambda m: flip(m / "tokenizer.json"), "/tokenizer.json", "copy it again"),
    "tokenizer not one": (
        lambda m: resealed(m, "tokenizer.json", b'{"version": "1.0"}'),
        "/tokenizer.json",
        "damaged, or not a tokenizer",
    ),
    "tokenizer a bomb": (
        lambda m: resealed(m, "tokenizer.json", b'{"model":' * 10**5),
        "/tokenizer.json",
        "damaged, or not a tokenizer",
    ),
    "tokenizer with a gap": (beyond_the_vocabulary, "/tokenizer.json", "learn it with"),
    "recipe changed": (lambda m: flip(m / "recipe.toml"), "/recipe.toml", "copy it again"),
    "recipe with an unknown key": (
        lambda m: in_toml(m, "heads =", "hats ="),
        "/recipe.toml",
        "unknown key model.hats: did you mean model.heads?",
    ),
    "recipe of another width": (
        lambda m: in_toml(m, "d_model = 16", "d_model = 18"),
        "",
        "the weights do not fit recipe.toml",
    ),
    "recipe of endless layers": (
        lambda m: in_toml(m, "layers = 1", "layers = 2000000000"),
        "",
        "the weights do not fit recipe.toml",
    ),
}


def seal_bare(directory: Path, about: dict[str, Any]) -> None:
    """A manifest whose checksum is right, with `about` for all of it."""
    import hashlib

    manifest = {"format": 1, **about}
    checksum = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (directory / "manifest.json").write_text(json.dumps(manifest | {"checksum": checksum}))


@pytest.mark.parametrize("harm", MODELS)
def test_a_model_that_is_not_whole(world: World, harm: str) -> None:
    do, place, remedy = MODELS[harm]
    model = world.copy("model")
    do(model)
    with unchanged(world.folder):
        said = refused("translate", model, stdin=GOOD.encode())
    assert said.startswith(place if place[:1].isalpha() else f"{model}{place}: ")
    assert remedy in said


def test_weights_are_never_unpickled(world: World) -> None:
    model, mark = world.copy("model"), world.folder / "unpickled"
    for weights in (pickle.dumps(Mark(mark)), pickle.dumps({"a": Mark(mark)}, protocol=0)):
        resealed(model, "model.safetensors", weights)
        assert "not safetensors" in refused("translate", model, stdin=GOOD.encode())
    torch.save({"a": Mark(mark)}, model / "model.safetensors")
    reseal(model)
    assert "not safetensors" in refused("translate", model, stdin=GOOD.encode())
    assert not mark.exists()
    pickle.loads(pickle.dumps(Mark(mark)))
    assert mark.exists()


def test_an_unfinished_run_says_how_to_go_on(world: World) -> None:
    run = world.copy("run")
    for name in (*PARTS, "manifest.json"):
        (run / name).unlink()
    said = refused("translate", run, stdin=GOOD.encode())
    assert said.startswith(f"{run}: training has not finished: go on with regard train")
    assert f"regard average {run}" in said


def test_prepared_data_is_no_model(world: World) -> None:
    said = refused("translate", world.made / "data", stdin=GOOD.encode())
    assert said.startswith(f"{world.made / 'data'}")


# Runs and their checkpoints -----------------------------------------------------------------------


def resume(world: World, run: Path, *more: str | Path) -> list[str | Path]:
    return ["train", "-q", "--data", world.made / "data", "--out", run, *more]


@pytest.mark.parametrize("command", ["train", "average"])
def test_no_checkpoint_is_whole(world: World, command: str) -> None:
    run = world.copy("run")
    flip(run / "checkpoints" / "step-2" / "weights.safetensors")
    truncate(run / "checkpoints" / "step-3" / "optimizer.safetensors")
    (run / "checkpoints" / "step-4" / "manifest.json").unlink()
    average = ["average", run, "--last", "2", "--out", world.folder / "out"]
    with unchanged(world.folder):
        said = refused(*(resume(world, run) if command == "train" else average))
    assert said.startswith(f"{run}/checkpoints: no checkpoint is whole ({run}/checkpoints/step-4")
    assert "put one back from a copy" in said


@pytest.mark.parametrize(
    "harm",
    [
        lambda step: flip(step / "weights.safetensors"),
        lambda step: truncate(step / "optimizer.safetensors"),
        lambda step: (step / "weights.safetensors").unlink(),
        lambda step: (step / "manifest.json").write_text("{"),
        lambda step: reseal(step, step=7),
        lambda step: seal_bare(step, {"step": 4, "files": {}}),
        lambda step: (shutil.rmtree(step), step.mkdir()),
        lambda step: (shutil.rmtree(step), step.write_text("")),
    ],
    ids=[
        *("weights changed", "moments truncated", "weights removed", "manifest cut"),
        *("of another step", "bare", "empty", "a file"),
    ],
)
def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(
    world: World, harm: Callable[[Path], object]
) -> None:
    run = world.copy("run")
    harm(run / "checkpoints" / "step-4")
    result = regard(*resume(world, run))
    assert result.status == 0, result.stderr
    [note] = result.stderr.splitlines()
    assert note.startswith(f"skipping a damaged checkpoint: {run}/checkpoints/step-4")
    starts = [line for line in (run / "journal.jsonl").read_text().splitlines() if "start" in line]
    assert [json.loads(line)["step"] for line in starts] == [0, 3]
    for name in ("weights", "optimizer"):
        again = load_file(run / f"checkpoints/step-4/{name}.safetensors")
        first = load_file(world.made / f"run/checkpoints/step-4/{name}.safetensors")
        assert all(torch.equal(again[key], first[key]) for key in first)


def test_a_checkpoint_is_never_unpickled(world: World) -> None:
    run, mark = world.copy("run"), world.folder / "unpickled"
    for step in (2, 3, 4):
        for name in ("weights", "optimizer"):
            resealed(
                run / f"checkpoints/step-{step}", f"{name}.safetensors", pickle.dumps(Mark(mark))
            )
    for argv in (resume(world, run), ["average", run, "--last", "2", "--out", run / "out"]):
        said = refused(*argv)
        assert said.startswith(f"{run}/checkpoints/step-4/")
        assert "not safetensors" in said
    assert not mark.exists()


def test_checkpoints_that_do_not_belong_together(world: World) -> None:
    run = world.copy("run")
    step = run / "checkpoints" / "step-3"
    weights = load_file(step / "weights.safetensors")
    save_file({"embedding.tokens.weight": torch.zeros(7, 5)}, step / "weights.safetensors")
    reseal(step)
    assert len(weights) > 1
    with unchanged(world.folder):
        said = refused("average", run, "--last", "2", "--out", world.folder / "out")
    assert said.startswith(f"{step}: its weights differ in shape")


@pytest.mark.parametrize(
    ("of", "said"),
    [
        ("nowhere", "nowhere: is not a run directory, it has no recipe.toml: name one that"),
        ("data", "data: is not a run directory, it has no recipe.toml: name one that"),
        ("model", "model: has no checkpoint to average yet: train on"),
        ("source.en", "source.en: is a file: name a run directory"),
    ],
)
def test_what_cannot_be_averaged(world: World, of: str, said: str) -> None:
    with unchanged(world.folder):
        answer = refused("average", world.made / of, "--out", world.folder / "out")
    assert answer.startswith(f"{world.made}/{said}")


def test_more_checkpoints_than_there_are(world: World) -> None:
    said = refused("average", world.made / "run", "--last", "9", "--out", world.folder / "out")
    assert said == f"{world.made / 'run'}: has 3 whole checkpoints, not 9: give --last 3"


def test_a_run_keeps_the_recipe_it_was_begun_with(world: World) -> None:
    run = world.copy("run")
    with unchanged(world.folder):
        said = refused(*resume(world, run, "--set", "training.steps=9"))
    assert said.startswith(f"{run}: was begun with another recipe (training.steps: 4 -> 9): ")
    assert "--accept-changes" in said


def test_a_run_keeps_the_shape_it_was_begun_with(world: World) -> None:
    run = world.copy("run")
    with unchanged(world.folder):
        said = refused(*resume(world, run, "--accept-changes", "--set", "model.d_ff=48"))
    assert said.startswith(f"{run}/checkpoints/step-4: does not fit this recipe")
    assert "choose another --out" in said


@pytest.mark.parametrize("changed", ["data", "tokenizer"])
def test_a_run_keeps_the_data_it_was_begun_with(world: World, changed: str) -> None:
    run, other = world.copy("run"), world.folder / "other"
    text = world.text
    if changed == "data":
        for name in ("source.en", "target.de"):
            path = world.folder / name
            path.write_text(path.read_text() + "new\n")
        text = [*text, "--tokenizer", world.made / "data" / "tokenizer.json"]
    more = TINY if changed == "data" else [*TINY, "--set", "tokenizer.kind=bpe"]
    if changed == "tokenizer":
        more = [*more, "--set", "tokenizer.vocabulary=301"]
    assert regard("prepare", "-q", *text, "--out", other, "--recipe", "base", *more).status == 0
    with unchanged(world.folder):
        said = refused("train", "-q", "--data", other, "--out", run)
    assert said.startswith(f"{run}/checkpoints/step-4: the ")
    assert "choose another --out" in said


def test_a_run_keeps_the_text_it_was_begun_with(world: World) -> None:
    begin = ["train", "-q", *world.text, "--out", world.folder / "run", "--recipe", "base", *TINY]
    assert regard(*begin).status == 0
    other = world.write("other.en", "one other line\n" * 75)
    again = ["--source", other, *world.text[2:], "--out", world.folder / "run"]
    with unchanged(world.folder):
        said = refused("train", "-q", *again)
    assert said.startswith(f"{other}: is not the text that this run was begun with: choose another")


def test_a_second_process_in_one_run(world: World) -> None:
    run = world.copy("run")
    with (run / ".lock").open() as lock, unchanged(world.folder):
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = refused(*resume(world, run))
    assert said.startswith(f"{run}: another process is training here: wait for it, or choose")
    assert regard(*resume(world, run)).status == 0


@pytest.mark.parametrize("content", [b"[model]\nlayer = 1\n", b"\xff", b"x = " + b"[" * 10**5])
def test_a_run_whose_recipe_is_damaged(world: World, content: bytes) -> None:
    run = world.copy("run")
    (run / "recipe.toml").write_bytes(content)
    for argv in (resume(world, run), ["average", run, "--last", "2", "--out", run / "out"]):
        with unchanged(world.folder):
            assert refused(*argv).startswith(f"{run}/recipe.toml: ")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("model.d_ff=2000000000", "a model of "),
        ("model.layers=2147483647", "a model of "),
        ("data.source_tokens=2", r"\d+ of \d+ pairs do not fit a batch: .* raise it to \d+"),
    ],
)
def test_a_run_too_large_for_the_machine(world: World, setting: str, said: str) -> None:
    argv = ["train", "-q", "--data", world.made / "data", *world.out, "--recipe", "base"]
    with unchanged(world.folder):
        assert re.match(said, refused(*argv, *TINY, "--set", setting))


# Prepared data and tokenizers ---------------------------------------------------------------------


def in_manifest(data: Path, name: str) -> None:
    """Have the manifest give the present size of a file."""
    manifest = json.loads((data / "manifest.json").read_bytes())
    manifest["files"][name]["bytes"] = (data / name).stat().st_size
    (data / "manifest.json").write_text(json.dumps(manifest))


def _pickled(data: Path) -> None:
    name = "train.source.ids.npy"
    marks = np.array([Mark(data / "unpickled")], object)
    np.save(data / name, marks, allow_pickle=True)
    in_manifest(data, name)


def _not_rising(data: Path) -> None:
    path = data / "train.target.starts.npy"
    starts = np.load(path)
    starts[3] = starts[-1]
    np.save(path, starts)


def _beyond_the_vocabulary(data: Path) -> None:
    path = data / "train.source.ids.npy"
    ids = np.load(path)
    ids[1] = 300
    np.save(path, ids)


DATA: dict[str, tuple[Callable[[Path], object], str, str]] = {
    # what is done to prepared data; the file that the sentence begins with; the remedy
    "removed": (shutil.rmtree, "", "make it with `regard prepare`"),
    "a file": (lambda d: (shutil.rmtree(d), d.write_text("")), "", "make it with `regard prepare`"),
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "", "make it with `regard prepare`"),
    "manifest cut": (lambda d: truncate(d / "manifest.json"), "/manifest.json", "prepare the data"),
    "manifest a bomb": (
        lambda d: (d / "manifest.json").write_text("[" * 10**6),
        "/manifest.json",
        "prepare the data again",
    ),
    "manifest of another thing": (
        lambda d: (d / "manifest.json").write_text("{}"),
        "/manifest.json",
        "prepare the data again",
    ),
    "another tokenizer": (
        lambda d: flip(d / "tokenizer.json"),
        "/tokenizer.json",
        "prepare the data again",
    ),
    "ids truncated": (
        lambda d: truncate(d / "train.source.ids.npy"),
        "/train.source.ids.npy",
        "prepare the data again",
    ),
    "ids removed": (
        lambda d: (d / "valid.target.ids.npy").unlink(),
        "/valid.target.ids.npy",
        "cannot be read",
    ),
    "ids no array": (
        lambda d: (d / "train.source.ids.npy").write_bytes(
            b"x" * (d / "train.source.ids.npy").stat().st_size
        ),
        "/train.source.ids.npy",
        "prepare the data again",
    ),
    "ids beyond the vocabulary": (
        _beyond_the_vocabulary,
        "/train.source.ids.npy",
        "prepare the data again",
    ),
    "ids pickled": (_pickled, "/train.source.ids.npy", "prepare the data again"),
    "starts not rising": (_not_rising, "/train.target.starts.npy", "prepare the data again"),
    "validation text shorter": (
        lambda d: (d / "valid.source.txt").write_text("one line\n"),
        "/valid.source.txt",
        "prepare the data again",
    ),
}


@pytest.mark.parametrize("harm", DATA)
def test_prepared_data_that_is_not_whole(world: World, harm: str) -> None:
    do, place, remedy = DATA[harm]
    data = world.copy("data")
    do(data)
    with unchanged(world.folder):
        said = refused("train", "--data", data, *world.out, "--recipe", "base", *TINY)
    assert said.startswith(f"{data}{place}: ")
    assert remedy in said
    assert not (data / "unpickled").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the tokenizer: No such file or directory"),
        (b"", "damaged, or not a tokenizer"),
        (b"{}", "damaged, or not a tokenizer"),
        (b"\xff\xfe", "damaged: not the UTF-8 text of a tokenizer"),
        (b"[" * 10**5, "damaged, or not a tokenizer"),
    ],
    ids=["missing", "empty", "another JSON", "binary", "a bomb"],
)
def test_a_tokenizer_that_is_none(world: World, content: bytes | None, said: str) -> None:
    path = world.folder / "mine.json"
    if content is not None:
        path.write_bytes(content)
    with unchanged(world.folder):
        answer = refused("prepare", *world.text, *world.out, "--tokenizer", path)
    assert answer.startswith(f"{path}: {said}")


# Scores -------------------------------------------------------------------------------------------


def test_scores_need_a_reference_for_each_line(world: World) -> None:
    short = world.write("short.txt", GOOD * 3)
    said = refused("score", world.folder / "source.en", "-r", world.text[3], "-r", short)
    assert said.startswith(f"{short}: has 3 lines for 75 translations: give one reference line")


@pytest.mark.parametrize("side", ["hypothesis", "reference"])
def test_nothing_to_score(world: World, side: str) -> None:
    empty = world.write("empty.txt", "")
    paths = [empty, world.text[1]] if side == "hypothesis" else [world.text[1], empty]
    assert refused("score", paths[0], "-r", paths[1]).startswith(f"{empty}: ")


# As a process -------------------------------------------------------------------------------------


def process(*argv: str | Path, **how: Any) -> Result:
    """Run the command as users do."""
    command = [sys.executable, "-m", "regard", *map(str, argv)]
    done = subprocess.run(
        command,
        input=GOOD.encode(),
        stdout=how.get("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        timeout=60,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    return Result(done.returncode, (done.stdout or b"").decode(), done.stderr.decode())


def test_a_refusal_of_the_process(world: World) -> None:
    flip(world.copy("model") / "model.safetensors")
    result = process("translate", world.folder / "model")
    assert sentence(result).startswith(f"{world.folder}/model/model.safetensors: damaged: ")
    assert result.stdout == ""


def test_nobody_can_take_the_output(world: World) -> None:
    with Path("/dev/full").open("wb") as full:
        result = process("translate", world.made / "model", stdout=full)
    assert sentence(result).startswith("standard output: No space left on device: make room")
