"""What is imported when: commands and `import regard` do not wait for PyTorch."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]


def imported_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_import_regard_is_light() -> None:
    assert not {"torch", "numpy", "tokenizers", "typer"} & imported_by("import regard")


def test_the_command_line_starts_without_torch() -> None:
    assert "torch" not in imported_by("import regard.cli.main")


def test_loops_and_foreign_words_are_not_loaded_before_they_are_used() -> None:
    found = imported_by("import regard.translation, regard.training")
    assert "torch" in found
    assert not {"numba", "sacremoses"} & found


def test_preparing_text_needs_no_torch() -> None:
    assert "torch" not in imported_by("import regard.inputs, regard.api")


def test_what_the_package_offers() -> None:
    functions = ["load", "load_parser", "parse", "prepare", "train"]
    assert sorted(regard.__all__) == sorted(["__version__", *functions])
    for name in functions:
        assert callable(getattr(regard, name))
    with pytest.raises(AttributeError, match="module 'regard' has no attribute 'translate'"):
        regard.translate  # noqa: B018


def test_what_experiments_and_benchmarks_import_is_there() -> None:
    missing = []
    for path in [*(ROOT / "experiments").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard"):
                module = importlib.import_module(node.module or "")
                names = [name.name for name in node.names if not hasattr(module, name.name)]
                missing += [f"{path}: {n}" for n in names if not _is_module(f"{node.module}.{n}")]
    assert not missing


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None
