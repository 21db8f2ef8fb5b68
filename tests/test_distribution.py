"""The wheel and the source archive: their contents, and the command from an installed wheel."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
INFO = f"regard-{regard.__version__}.dist-info"
EXTRAS = PROJECT["project"]["optional-dependencies"]


def tracked(*places: str) -> set[str]:
    """The files that git tracks, or that it would with the next commit."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *places]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this is not a clone, so nothing says which files belong to it")
    return {name for name in done.stdout.splitlines() if (ROOT / name).exists()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source archive, made by the build backend without a network."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return built / f"regard-{regard.__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return set(opened.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as opened:
        return Parser().parsestr(opened.read(f"{INFO}/METADATA").decode())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed by pip into a folder of its own, without a network."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    command = [*pip, "--no-compile", "--target", str(folder), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_has_the_package_the_pages_and_the_licence(names: set[str]) -> None:
    package = {name.removeprefix("src/") for name in tracked("src/regard")}
    pages = {f"regard/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    pages -= {name for name in pages if name.endswith(".ko.md")}
    about = {f"{INFO}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    assert names == package | pages | about | {f"{INFO}/licenses/LICENSE"}
    assert {"regard/py.typed", "regard/budget/rule.toml", "regard/serve/site/index.html"} <= names
    assert {"regard/view/page.js", "regard/docs/serving.md"} <= names


def test_the_source_archive_has_all_that_git_has(built: Path) -> None:
    with tarfile.open(built / f"regard-{regard.__version__}.tar.gz") as opened:
        found = {name.partition("/")[2] for name in opened.getnames()}
    assert found == {name for name in tracked() if not name.startswith(".ci")} | {"PKG-INFO"}


def test_the_metadata_are_those_of_the_project(metadata: Message) -> None:
    assert metadata["Version"] == regard.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata.get_all("Provides-Extra") == sorted(EXTRAS)
    assert "# regard" in str(metadata.get_payload())


def test_the_version_is_written_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    holding = [
        path.name
        for path in [ROOT / "pyproject.toml", *(ROOT / "src").rglob("*.py")]
        if re.search(rf"version.*= *\"{re.escape(regard.__version__)}\"", path.read_text("utf-8"))
    ]
    assert holding == ["__init__.py"]


def test_every_requirement_has_a_pinned_version() -> None:
    pinned = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert pinned == sorted(pinned, key=lambda line: line.partition("==")[0].lower())
    known = {normal(line) for line in pinned}
    extras = (part for name, parts in EXTRAS.items() if name not in ("ja", "ko") for part in parts)
    asked = {normal(part) for part in [*PROJECT["project"]["dependencies"], *extras]}
    assert asked - known == {"regard"}


def normal(requirement: str) -> str:
    """The name in a requirement, as package indexes write it."""
    name = re.match(r"[\w.-]+", requirement)
    assert name, requirement
    return re.sub(r"[-_.]+", "-", name[0]).lower()


def ran(installed: Path, *argv: str) -> str:
    """The output of the installed command, which finds no other regard."""
    environment = os.environ | {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, installed / "bin" / "regard", *argv],
        env=environment, cwd=installed, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_installed_command_runs(installed: Path) -> None:
    code = "import regard; print(regard.__file__)"
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == installed / "regard" / "__init__.py"
    assert ran(installed, "--version") == f"regard {regard.__version__}\n"
    assert ran(installed, "help", "serving") == (ROOT / "docs" / "serving.md").read_text("utf-8")
    assert ran(installed, "paper-diff", "small").startswith("Compared with ")


def test_the_documented_commands_install_the_wheel(wheel: Path, tmp_path: Path) -> None:
    pages = [ROOT / "README.md", ROOT / "docs" / "install.md", ROOT / "docs" / "serving.md"]
    commands = [
        found
        for page in pages
        for found in re.findall(
            r"^ *(?:\S+ )?\S*(pip install .*\.whl.*)$", page.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert len(commands) == len(pages)
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    shutil.copy(ROOT / "constraints.txt", tmp_path)
    for command in commands:
        offline = command.replace("install", "install --dry-run --no-deps --no-index", 1)
        done = subprocess.run(
            ["bash", "-c", f'"{sys.executable}" -m {offline}'],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"Processing ./dist/{wheel.name}" in done.stdout
        assert "does not provide the extra" not in done.stderr
