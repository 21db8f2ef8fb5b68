"""Every command and line of Python in the README runs, on a small corpus and a small model.

The Korean README has the same commands, links and figures, and what the pages name exists.
"""

import json
import re
import shlex
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import regard as package
from cli.refusing import regard, running
from exchange.brief import brief_certificates  # noqa: F401
from exchange.marian_models import write_marian
from regard import api
from regard.budget import speed
from regard.corpus import write_corpus, write_treebank

ROOT = Path(__file__).parents[1]
SMALLER = (
    "model.layers=1 model.d_model=16 model.d_ff=32 model.heads=2 tokenizer.vocabulary=400 "
    "data.source_tokens=600 data.target_tokens=600 "
    "training.steps=6 training.save_every=2 training.validate_every=6 "
    "training.validate_sentences=2 search.max_extra=5"
)
ACTIVATING = [
    "source .venv/bin/activate",
    "python3 -m venv installed",
    "source installed/bin/activate",
]
PAGES = ["README.md", "README.ko.md"]
DOCUMENTS = [
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("experiments/*/*.md")]
]


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), flags=re.DOTALL | re.MULTILINE)


def links(page: str) -> list[str]:
    return re.findall(r"\]\((?!http)([^)]+)\)", text_of(page))


def files_named(page: str) -> list[str]:
    return re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|js|md|toml))`", text_of(page))


def rows(page: str) -> list[str]:
    """The rows of all tables."""
    return re.findall(r"^\|.*", text_of(page), flags=re.MULTILINE)


def figures(page: str) -> list[list[str]]:
    """The numbers of each row of a table, in any order."""
    return [sorted(re.findall(r"\d+(?:[.,]\d+)*", row)) for row in rows(page)]


def anchors(page: Path) -> set[str]:
    """What a link may name after # in a page: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


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
    write_corpus(tmp_path / "train", seed=1, sentences=120)
    write_corpus(tmp_path / "dev", seed=3, sentences=5)
    write_corpus(tmp_path / "test", seed=2, sentences=5)
    (tmp_path / "test.en").rename(tmp_path / "in.txt")
    (tmp_path / "test.de").rename(tmp_path / "ref.txt")
    for name, seed, trees in (("train", 1, 60), ("dev", 2, 5), ("gold", 2, 5)):
        write_treebank(tmp_path / f"{name}.mrg", seed, trees)
    (tmp_path / "words.txt").write_text("The dog barks .\n", encoding="utf-8")
    write_marian(tmp_path / "opus-mt-en-de", generation={"max_length": 6})
    return tmp_path


def run(command: str) -> None:
    """A `regard` command as a shell would run it, redirections included."""
    words = shlex.split(command)
    if words[1] == "serve":
        serve(words)
        return
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


def serve(words: list[str]) -> None:
    """Start a server, at a free port, that must answer and end with status 0 after SIGTERM.

    It is a fork of a process that has the libraries; test_deployment.py starts new ones.
    """
    with running(*words[1:], "--port", "0", "--quiet") as server:
        with urlopen(f"{server.line()}/health", timeout=60) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        assert server.result(60).status == 0


def train_smaller(**given: Any) -> Path:
    """`regard.train` with a small model."""
    assignments = (field.split("=") for field in SMALLER.split())
    return api.train(**given, changes={key: json.loads(value) for key, value in assignments})


@pytest.mark.usefixtures("in_a_folder_of_text", "brief_certificates")
def test_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MOST_TIMED", speed.LEAST_TIMED)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for command in shell_commands("README.md"):
        program, *rest = shlex.split(command)
        if program == "make":
            assert rest[0] in targets, command
        elif program == "regard":
            run(command)
        else:
            elsewhere = command in ACTIVATING or program == "pip"  # tests/test_distribution.py
            assert elsewhere, f"a command that no test runs: {command}"
    monkeypatch.setattr(package, "train", train_smaller)
    for block in blocks("README.md", "python"):
        names: dict[str, Any] = {}
        exec(compile(block, "README.md", "exec"), names)
        assert len(names["translations"]) == 2
    assert len(Path("out.txt").read_text(encoding="utf-8").split("\n")) == 5 + 1


def test_pages_have_links_and_name_files() -> None:
    assert sum(len(links(page)) for page in DOCUMENTS) > 100
    assert sum(len(files_named(page)) for page in DOCUMENTS) > 50


@pytest.mark.parametrize("page", DOCUMENTS)
def test_links_lead_somewhere(page: str) -> None:
    for link in links(page):
        path, _, heading = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


@pytest.mark.parametrize("page", DOCUMENTS)
def test_files_that_are_named_exist(page: str) -> None:
    for name in files_named(page):
        places = (ROOT, ROOT / "src" / "regard", (ROOT / page).parent)
        assert any((place / name).exists() for place in places), name


@pytest.mark.parametrize("page", PAGES)
def test_a_row_has_one_figure(page: str) -> None:
    found = [row.split("|")[2].strip() for row in rows(page) if row.count("|") == 4]
    assert len(found) > 30
    for figure in found:
        assert len(re.findall(r"\d[\d.,]*(?:e-\d)?", figure)) <= 1, figure


def test_the_pages_are_level() -> None:
    english, korean = (
        (shell_commands(page), blocks(page, "python"), figures(page), set(links(page)) - {*PAGES})
        for page in PAGES
    )
    assert english == korean


def test_the_reading_order_never_looks_ahead() -> None:
    first_table = text_of("docs/reading.md").split("## ")[1]
    order = re.findall(r"^\| `([\w/]+)\.py`", first_table, flags=re.MULTILINE)
    modules = [name.replace("/", ".") for name in order]
    assert len(modules) > 10
    for i, (module, path) in enumerate(zip(modules, order, strict=True)):
        code = (ROOT / "src" / "regard" / f"{path}.py").read_text(encoding="utf-8")
        imported = set(re.findall(r"^\s*from regard\.([\w.]+) import", code, flags=re.MULTILINE))
        assert not imported & set(modules[i:]), module
