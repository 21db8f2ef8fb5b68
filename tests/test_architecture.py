"""The rules that keep the source readable: sizes, names, directions of imports, words."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "regard"
FILES = sorted(SOURCE.rglob("*.py"))
FOLDERS = sorted({path.parent for path in FILES} - {SOURCE})
Function = ast.FunctionDef | ast.AsyncFunctionDef

OFFERED = ["__version__", "load", "load_parser", "parse", "prepare", "train"]
"""What `import regard` gives."""

SHARED_NAMES = {
    "load": "regard.load opens a translator, regard.load_parser is parsing.load",
    "parse": "the command `regard parse` is named as the function that it calls",
    "prepare": "the command `regard prepare` and regard.prepare, for data.prepare.prepare",
    "train": "the command `regard train` and regard.train, for training.train",
}
"""Public names that more than one module may define, and why; ten at most."""

SHORT = {"attention.py": 110, "training.py": 140}
"""The most lines of files that shall be read in one go; others may have 340."""

ASKS = ["on_cpu", "by_loops", "in_int8", "is_grad_enabled", "can_use_loops", "can_pack"]
"""Functions that tell which implementation of an equation is to run."""


@cache
def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(text_of(path))


def name_of(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def listed(rule: str, broken: Iterable[str | tuple[object, ...]]) -> str:
    """A message that names all that break a rule."""
    rows = (row if isinstance(row, str) else "  ".join(map(str, row)) for row in broken)
    return "\n  ".join([rule, *rows])


def functions() -> Iterator[tuple[str, Function]]:
    """Every function and method, with a name to report it by."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, Function):
                yield f"{name_of(path)}:{node.lineno} {node.name}", node


def lines(first: ast.AST, last: ast.AST) -> int:
    """Lines from the beginning of one node to the end of another."""
    return last.end_lineno - first.lineno + 1  # type: ignore[attr-defined]


def documented(node: ast.AST) -> ast.Expr | None:
    """The docstring of a module, a class or a function, as a statement."""
    if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node):
        return node.body[0]  # type: ignore[return-value]
    return None


def test_no_file_is_long() -> None:
    counted = {name_of(path): len(text_of(path).splitlines()) for path in FILES}
    assert SHORT.keys() <= counted.keys()
    long = [(name, n) for name, n in counted.items() if n > SHORT.get(name, 340)]
    assert not long, listed("files of too many lines:", long)


def test_every_function_fits_on_a_screen() -> None:
    """From the first decorator to the last line at most 60 lines; of statements at most 50.

    The docstrings of what `import regard` offers are its manual, and may be longer.
    """
    long = []
    for name, node in functions():
        docstring = documented(node)
        whole = lines(min([node, *node.decorator_list], key=lambda n: n.lineno), node)
        if docstring and name.startswith("api.py:") and node.name in OFFERED:
            whole -= lines(docstring, docstring)
        body = node.body[1:] if docstring else node.body
        statements = lines(body[0], body[-1]) if body else 0
        if whole > 60 or statements > 50:
            long.append((name, whole, statements))
    assert not long, listed("functions of too many lines, and their statements:", long)


def test_training_is_told_in_thirty_lines() -> None:
    (train,) = (
        node
        for node in parsed(SOURCE / "training.py").body
        if isinstance(node, Function) and node.name == "train"
    )
    assert lines(train, train) <= 30


def complexity(node: ast.AST) -> int:
    """Branches of a function plus 1; each `and`, `or` and part of a comprehension is a branch.

    Stricter than ruff's C901, which counts statements only. Functions inside count for themselves.
    """
    branches = ast.If | ast.IfExp | ast.For | ast.While | ast.ExceptHandler | ast.Assert
    total = 1
    for child in ast.iter_child_nodes(node):
        if isinstance(child, branches | ast.match_case):
            total += 1
        elif isinstance(child, ast.BoolOp):
            total += len(child.values) - 1
        elif isinstance(child, ast.comprehension):
            total += 1 + len(child.ifs)
        if not isinstance(child, Function | ast.ClassDef):
            total += complexity(child) - 1
    return total


def test_complexity_is_counted_as_said() -> None:
    code = "def f(a, b):\n  if a and b or a: return [x for x in a if x]\n  return 1 if a else 2"
    assert complexity(ast.parse(code).body[0]) == 1 + 1 + 2 + 2 + 1


def test_no_function_has_many_branches() -> None:
    complex_ = [(name, n) for name, node in functions() if (n := complexity(node)) > 12]
    assert not complex_, listed("functions of a complexity over 12:", complex_)


def test_no_class_of_a_run_has_many_methods() -> None:
    many = []
    for path in (SOURCE / "run").rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(statement, Function) for statement in node.body)
                many += [(name_of(path), node.name, methods)] if methods > 12 else []
    assert not many, listed("classes of more than 12 methods:", many)


def public_names(path: Path) -> set[str]:
    """The public names that a module itself defines at its top level."""
    names = set()
    for node in parsed(path).body:
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def test_a_public_name_is_defined_in_one_module() -> None:
    homes = defaultdict(list)
    for path in FILES:
        for name in public_names(path):
            homes[name].append(name_of(path))
    shared = {name: places for name, places in homes.items() if len(places) > 1}
    new = [(name, *places) for name, places in shared.items() if name not in SHARED_NAMES]
    assert not new, listed("names that several modules define:", new)
    assert shared.keys() == SHARED_NAMES.keys(), "SHARED_NAMES lists what is not shared"
    assert len(SHARED_NAMES) <= 10


def test_imports_go_downwards_through_the_ranks() -> None:
    """The contract in `pyproject.toml`, in which every module and folder of regard has a rank."""
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports; exit(lint_imports(no_cache=True))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


MODULES = {".".join(("regard", *p.relative_to(SOURCE).with_suffix("").parts)): p for p in FILES}


def imported(node: ast.AST) -> Iterator[str]:
    """The modules that a file imports, at its top or in functions, but not for types alone."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert not node.level, f"line {node.lineno}: an import should name its whole module"
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            package = any(module.startswith(f"{name}.") for module in MODULES)
            yield name if package or name in MODULES else str(node.module)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def inside(folder: str, module: str) -> str | None:
    """The part of a folder to which a module belongs: a file, a folder in it, or `__init__`."""
    if module == folder:
        return "__init__"
    return module[len(folder) + 1 :].split(".")[0] if module.startswith(f"{folder}.") else None


@pytest.mark.parametrize("path", FOLDERS, ids=name_of)
def test_no_imports_in_a_circle(path: Path) -> None:
    folder = ".".join(("regard", *path.relative_to(SOURCE).parts))
    graph = defaultdict(set)
    for module, file in MODULES.items():
        one = inside(folder, module)
        if one:
            others = {inside(folder, name) for name in imported(parsed(file))}
            graph[one] |= others - {one, None}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"in {folder}: {' <- '.join(error.args[1])}")


def test_what_the_package_offers() -> None:
    code = "import regard, sys; print(*dir(regard)); print(*regard.__all__); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, offered, loaded = (line.split() for line in done.stdout.splitlines())
    assert offered == OFFERED
    public = [name for name in shown if not name.startswith("_")]
    assert public == OFFERED[1:], "dir(regard), which completion shows, is not regard.__all__"
    assert not {"torch", "numpy"} & set(loaded)


def docstrings() -> Iterator[tuple[str, str]]:
    """Every text that documents a module, a class, a function or a value."""
    for path in FILES:
        for node in ast.walk(parsed(path)):
            match node:
                case ast.Expr(ast.Constant(str(text))):
                    yield f"{name_of(path)}:{node.lineno}", text.strip()


def test_docstrings_begin_with_what_they_are_about() -> None:
    bad = re.compile(r"(§[\d.]+[:,]? )?(Of|As|The same|These|Those|What|And|But)\b")
    begun = [(where, text.split("\n")[0]) for where, text in docstrings() if bad.match(text)]
    assert not begun, listed("docstrings that begin with no subject:", begun)


def occurrences(pattern: str, paths: list[Path]) -> list[str]:
    """The lines of some files in which a pattern occurs."""
    return [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in paths
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if re.search(pattern, line)
    ]


def test_one_file_chooses_the_implementation_of_an_equation() -> None:
    asked = re.compile(rf"\b({'|'.join(ASKS)})\(")
    defined = re.compile(rf"^ *def ({'|'.join(ASKS)})\(", re.MULTILINE)
    asking = [path for path in FILES if asked.search(text_of(path))]
    choosing = [name_of(path) for path in asking if not defined.search(text_of(path))]
    assert len(choosing) <= 1, listed(f"more than one file calls any of {ASKS}:", choosing)


def test_what_depends_on_the_device_is_chosen_in_few_places() -> None:
    """In the choice of an arithmetic, and in `machine/`, which tells what a device does."""
    asking = occurrences(r"\.type (==|!=|in|not in) ", FILES)
    elsewhere = [line for line in asking if "arithmetic/choose.py" not in line]
    elsewhere = [line for line in elsewhere if not line.startswith("src/regard/machine/")]
    assert asking
    assert not elsewhere, listed("the kind of a device is asked for:", elsewhere)


def test_nothing_is_chosen_by_the_context() -> None:
    assert not (lines := occurrences("ContextVar", FILES)), listed("a ContextVar:", lines)


def test_the_modules_of_section_3_know_nothing_of_layouts() -> None:
    files = [SOURCE / name for name in ("attention.py", "layers.py", "transformer.py")]
    layouts = occurrences("packed|W_qkv|W_kv|kept|Blocked|Int8", files)
    assert not layouts, listed("a layout of inference in the model:", layouts)


def test_nothing_is_patched() -> None:
    scripts = [*ROOT.glob("experiments/**/*.py"), *ROOT.glob("benchmarks/**/*.py"), *FILES]
    patched = occurrences(r"^ *regard\.[a-z_.]+ = ", scripts)
    assert not patched, listed("a name of another module is set:", patched)


def test_places_are_named_by_what_they_hold() -> None:
    vague = {"utils", "util", "helpers", "common", "misc", "constants"}
    tops = [ROOT / top for top in ("src", "tests", "benchmarks", "experiments")]
    places = [path for top in tops for path in top.rglob("*") if path.stem in vague]
    assert not places, listed("names that say nothing:", map(str, places))
