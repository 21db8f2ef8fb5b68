"""`regard score --trees`: the official program's output, byte for byte, and what is our own."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from cli.refusing import forked, process, refused
from regard.cli.score import score

GOOD = b"(TOP (S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .)))\n"
OTHER = b"(TOP (S (NP (DT the) (NN dog)) (VP (VBD sat)) (. .)))\n"

app = typer.Typer()
app.command()(score)


def run(*arguments: str | Path, given: bytes = b"") -> Result:
    return CliRunner().invoke(
        app, ["--trees", *map(str, arguments)], input=given, catch_exceptions=False
    )


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    return write(tmp_path / "gold.trees", GOOD * 2)


@pytest.fixture
def test(tmp_path: Path) -> Path:
    return write(tmp_path / "test.trees", GOOD + OTHER)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.data
def test_the_official_output(regard_data: Path) -> None:
    cases = sorted((regard_data / "oracles/evalb/open").iterdir())
    assert len(cases) > 40
    for case in cases:
        meta = json.loads((case / "meta.json").read_text("utf-8"))
        _, _, _, *options, _, _ = meta["command"].split()
        files = [case / "gold.trees", case / "test.trees", "--params", case / "prm", *options]
        result = run(*files)
        assert result.stdout_bytes == (case / "result.txt").read_bytes(), case.name
        assert result.stderr_bytes == (case / "stderr.txt").read_bytes(), case.name
        assert result.exit_code == meta["exit_code"], case.name
        result = run(*files, "--json")
        expected = json.loads((case / "summary.json").read_text("utf-8"))
        assert json.loads(result.stdout) == expected, case.name
        assert result.exit_code == meta["exit_code"], case.name


def test_table_and_summary(gold: Path, test: Path) -> None:
    result = run(gold, test)
    table, _, summary = result.stdout.partition("=== Summary ===\n")
    assert [line.split()[:3] for line in table.splitlines()[3:5]] == [
        ["1", "4", "0"],
        ["2", "4", "1"],
    ]
    assert "Bracketing FMeasure       = 100.00\n" in summary
    assert result.stderr == "2 : Words unmatch (cat|dog)\n"
    assert result.exit_code == 0


def test_nobody_can_take_the_remarks(gold: Path, test: Path) -> None:
    given = "score", "--trees", gold, test, "--summary"
    with Path("/dev/full").open("wb") as full:
        result = process(*given, stderr=full)
        assert process("score", "--trees", gold, "--nope", stderr=full).status == 2
    assert (result.status, result.stdout) == (0, run(gold, test, "--summary").stdout)


def test_summary_alone(gold: Path, test: Path) -> None:
    whole, summary = run(gold, test), run(gold, test, "--summary")
    assert summary.stdout.startswith("=== Summary ===\n")
    assert whole.stdout.endswith(summary.stdout)
    assert whole.stderr == summary.stderr


def test_json(gold: Path, test: Path) -> None:
    shown = json.loads(run(gold, test, "--json").stdout)
    assert shown["cutoff"] == 40
    assert shown["all"] == shown["len_le_cutoff"]
    assert (shown["all"]["sentences"], shown["all"]["error"], shown["all"]["f"]) == (2, 1, 100.0)


def test_the_default_is_collins(gold: Path, test: Path, tmp_path: Path) -> None:
    named = run(gold, test, "--params", "COLLINS.prm")
    assert named.stdout == run(gold, test).stdout
    empty = run(gold, test, "--params", write(tmp_path / "my.prm", b""), "--json")
    assert json.loads(empty.stdout)["totals_row"]["words"] == 4  # the full stop stays


def test_options_go_before_the_parameter_file(gold: Path, test: Path, tmp_path: Path) -> None:
    params = write(tmp_path / "my.prm", b"MAX_ERROR 7\nCUTOFF_LEN 9\nFOO\xff bar\n")
    result = run(gold, test, "-p", params, "-c", "3", "-e", "-1", "--json")
    assert result.exit_code == 1
    assert result.stderr_bytes.startswith(b"Unknown keyword (FOO\xff bar) in parameter file\n")
    shown = json.loads(run(gold, test, "-p", params, "-c", "3", "--json").stdout)
    assert (shown["cutoff"], shown["len_le_cutoff"]["sentences"]) == (3, 0)


def test_too_many_errors_end_with_status_1_and_without_a_summary(gold: Path, test: Path) -> None:
    result = process("score", "--trees", gold, test, "--max-errors", "-1")
    assert result.status == 1
    assert result.stderr == "2 : Words unmatch (cat|dog)\n"
    assert len(result.stdout.splitlines()) == 4
    result = forked("score", "--trees", gold, test, "--max-errors", "-1", "--json")
    assert (result.status, result.stdout) == (1, "null\n")


def test_words_keep_their_bytes(gold: Path, tmp_path: Path) -> None:
    test = write(tmp_path / "latin.trees", GOOD + GOOD.replace(b"cat", b"c\xe9"))
    assert run(gold, test).stderr_bytes == b"2 : Words unmatch (cat|c\xe9)\n"


def test_what_the_program_could_not_hold_is_told_by_file_and_line(tmp_path: Path) -> None:
    deep = b"(A" * 250 + b"(NN a)" + b")" * 250
    gold, test = write(tmp_path / "g", GOOD + deep), write(tmp_path / "t", GOOD + deep + b"))")
    result = run(gold, test)
    assert result.stderr.splitlines() == [
        f"{gold}:2: has 250 brackets (at most 200), which the official program cannot hold: read "
        "here in full",
        f"{test}:2: has 2 closing brackets too many, where the official program reads memory "
        "outside the sentence: ignored here, and counted as an error",
        f"{test}:2: has 250 brackets (at most 200), which the official program cannot hold: read "
        "here in full",
        "2 : Bracketing unbalance (too many close bracket)",
    ]
    assert result.stdout.splitlines()[4].split()[5:8] == ["250"] * 3


def test_archives_and_standard_input(gold: Path, test: Path, tmp_path: Path) -> None:
    expected = run(gold, test).stdout
    packed = write(tmp_path / "gold.gz", gzip.compress(gold.read_bytes()))
    assert run(packed, "-", given=test.read_bytes()).stdout == expected


def test_a_bracket_without_a_label_in_one_file_is_told(gold: Path, tmp_path: Path) -> None:
    """`regard parse` writes it: EVALB counts it as an error, unless the gold file has it, too."""
    bare = GOOD.replace(b"(TOP (", b"( (")
    one, other = write(tmp_path / "one", bare * 2), write(tmp_path / "other", bare * 2)
    for files, which in (((gold, one), one), ((one, gold), one), ((one, other), None)):
        result = run(*files, "--summary")
        assert ("Bracketing FMeasure       = 100.00" in result.stdout) == (which is None)
        assert result.stderr.startswith(f"{which}: its trees stand in a" if which else "")
        assert result.stderr.count("\n") == (which is not None)
    one.write_bytes(bare + b" " + bare)  # as where empty lines between trees were joined to them
    labelled = subprocess.run(["sed", "s/^ *( *(/(TOP (/", one], capture_output=True, check=True)
    assert labelled.stdout == GOOD * 2


def test_a_tree_over_several_lines_is_told_once(gold: Path, tmp_path: Path) -> None:
    """The command in docs/parsing.md joins its lines; a bracket that stays open is no such tree."""
    wide = write(tmp_path / "wsj.mrg", GOOD.replace(b" (", b"\n  (") * 2 + b"\n")
    for files in ((gold, wide), (wide, gold), (wide, write(tmp_path / "one", GOOD))):
        assert run(*files).stderr.splitlines().count(f"{wide}: give one tree a line") == 1
    open_ = write(tmp_path / "open", GOOD.replace(b")))", b")") + GOOD)
    assert "give one tree" not in run(gold, open_).stderr
    page = (Path(__file__).parents[2] / "docs/parsing.md").read_text("utf-8")
    [command] = [line.strip() for line in page.splitlines() if "wsj.mrg >" in line]
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    again = run(gold, tmp_path / "gold.mrg", "--summary")
    assert (again.stderr, "FMeasure       = 100.00" in again.stdout) == ("", True)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("--trees gold empty", "empty: is empty: there is nothing to score"),
        ("--trees empty gold", "empty: is empty: there is nothing to score"),
        ("--trees gold", "--trees takes two files, gold and test, and no --reference"),
        ("--trees gold test -r test", "--trees takes two files, gold and test, and no"),
        ("--trees - -", "standard input: can be read only once: save it in a file first"),
        ("--trees gold none", "none: no such file"),
        ("--trees none test", "none: no such file"),
        ("--trees . test", ".: is a directory: name the text file inside it"),
        ("--trees gold test -p none", "none: cannot be read: No such file or directory"),
        ("--trees gold wide", "wide:2: has a NUL byte, so this is a binary file or UTF-16"),
        ("--trees gold test -e many", "invalid value for --max-errors / -e: "),
        ("gold test", "a reference goes with --reference test; two files of trees with --trees"),
        ("gold -r test -e 0", "the options of EVALB go with --trees: add it"),
        ("gold -r test -c 3", "the options of EVALB go with --trees: add it"),
    ],
)
def test_refusals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: str, said: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in (
        ("gold", GOOD),
        ("test", GOOD),
        ("empty", b""),
        ("wide", GOOD + b"(\0N\0)\0\n"),
    ):
        write(tmp_path / name, content)
    assert refused("score", *argv.split()).startswith(said)
