"""Every command and line of Python in the README runs, on a small corpus and a small model.

And the Korean README has the same commands, links and figures.
"""

import re
import shlex
from pathlib import Path

import pytest

from cli.refusing import regard
from regard.corpus import example, write_corpus

ROOT = Path(__file__).parents[1]
SMALLER = (
    "model.layers=1 model.d_model=16 model.d_ff=32 model.heads=2 tokenizer.vocabulary=400 "
    "training.steps=6 training.save_every=2 training.validate_sentences=2 search.max_extra=5"
)
PAGES = ["README.md", "README.ko.md"]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def links(page: str) -> list[str]:
    return re.findall(r"\]\((?!http)([^)]+)\)", text_of(page))


def figures(page: str) -> list[list[str]]:
    """Of each row of a table, in any order."""
    rows = re.findall(r"^\|.*", text_of(page), flags=re.MULTILINE)
    return [sorted(re.findall(r"\d+(?:[.,]\d+)*", row)) for row in rows]


def shell_commands(page: str) -> list[str]:
    return [
        line.split("  #")[0].strip()
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.strip()
    ]


@pytest.fixture
def in_a_folder_of_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "train", seed=1, sentences=300)
    write_corpus(tmp_path / "test", seed=2, sentences=5)
    (tmp_path / "test.en").rename(tmp_path / "in.txt")
    (tmp_path / "test.de").rename(tmp_path / "ref.txt")
    for name, seed, trees in (("train", 1, 60), ("dev", 2, 5), ("gold", 2, 5)):
        lines = (f"( {example(seed, i).tree})\n" for i in range(trees))
        (tmp_path / f"{name}.mrg").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "words.txt").write_text("The dog barks .\n", encoding="utf-8")
    return tmp_path


def run(command: str) -> None:
    """A `regard` command as a shell would run it, redirections included."""
    words = shlex.split(command)
    stdin, out = b"", None
    if ">" in words:
        *words, _, out = words
    if "<" in words:
        *words, _, given = words
        stdin = Path(given).read_bytes()
    if words[1] in ("prepare", "train"):
        words += [part for field in SMALLER.split() for part in ("--set", field)]
    result = regard(*words[1:], stdin=stdin)
    assert result.status == 0, (command, result.stderr)
    if out:
        Path(out).write_text(result.stdout, encoding="utf-8")


def test_readme(in_a_folder_of_text: Path) -> None:
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for command in shell_commands("README.md"):
        program, *rest = shlex.split(command)
        if program == "make":
            assert rest[0] in targets, command
        elif program == "regard":
            run(command)
        else:
            assert command == "source .venv/bin/activate", f"a command that no test runs: {command}"
    for block in blocks("README.md", "python"):
        exec(compile(block, "README.md", "exec"), {})
    assert len(Path("out.txt").read_text(encoding="utf-8").split("\n")) == 5 + 1


@pytest.mark.parametrize(
    "page", [*PAGES, *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        assert ((ROOT / page).parent / link.partition("#")[0]).exists(), link


def test_the_pages_are_level() -> None:
    english, korean = (
        (shell_commands(page), blocks(page, "python"), figures(page), set(links(page)) - {*PAGES})
        for page in PAGES
    )
    assert english == korean
