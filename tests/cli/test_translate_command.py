"""`regard translate` as users run it on files: what it writes, and what it refuses."""

import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.refusing import GOOD, World, forked, refused, regard, unchanged
from cli.test_refused_places import NOWHERE
from cli.translating import BLOCK, finished
from files.limits import files_of_at_most
from regard.arithmetic.inference import Inference
from regard.cli.translate import _window
from regard.cli.translating import ParagraphLines, SentenceLines
from regard.translation import Translation, Translator
from serve.conftest import Shouting


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
    problem = re.escape(f"{text}:601: ") + r"\d+ pieces; this model reads at most 24: "
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


def test_a_window_that_is_given_holds_on_a_terminal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    translator: Any = SimpleNamespace(window_of=lambda wanted: wanted)
    assert [_window(translator, one, Path("-"), None) for one in (None, 8)] == [1, 8]


def test_a_count_of_a_part_of_the_lines_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    none: Any = None
    writing = SentenceLines(none, Path("in"), 1, False, True, True, False, 8)
    writing.read, writing.flaws = 1200, Counter(retried=2, wrong=1, loop=1)
    counts = "2 sentences were searched for again; 1 looks wrong: 1 loop"
    writing.report(1200)
    assert capsys.readouterr().err == f"{counts}\n"
    writing.report(9000)
    said = f"of 1,200 lines translated by this start: {counts}\n"
    assert capsys.readouterr().err == said


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


def test_a_full_disk_leaves_what_was_finished(world: World, command: list[str | Path]) -> None:
    command[3] = world.write("in.txt", GOOD * 100 + "\n" * 100 + GOOD)
    expected = forked(*command, "--window", "100")
    for room in (0, 300, 1000):
        out = world.folder / f"out{room}"
        with files_of_at_most(room):
            said = refused(*command, "--window", "100", "--out", out)
        assert "cannot write: File too large" in said
        assert not out.exists()
        assert forked(*command, "--window", "100", "--out", out).status == 0
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


def test_another_device_goes_on(
    begun: World, command: list[str | Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that reads more or fewer lines at a time has the same blocks."""
    monkeypatch.setattr(Inference, "window", 7)
    assert regard(*command, "--out", begun.folder / "out").status == 0


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


@pytest.mark.parametrize("kind", [SentenceLines, ParagraphLines])
def test_a_line_of_json_has_nothing_that_commands_a_terminal_or_ends_the_line(kind: type) -> None:
    lines = kind(Shouting(), Path("-"), 1, True, True, False, False, 9, "en")
    (written,) = lines.translated(["a\x9b31mé\u2028b"])
    assert written.isprintable()
    assert r"A\u009b31MÉ" in written


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
    said = refused(*command, "--engine", "onnx", "--out", made / "nothing")
    assert said == "--alignments: --engine onnx shows no attention: leave one of them out"
