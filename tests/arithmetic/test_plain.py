"""A run whose recipe says `plain` computes by the definitions of the paper and by nothing else."""

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest

import regard
from regard.measure.validation import validator
from run.copying import RECIPE, prepared, trained

SOURCE = Path(regard.__file__).parent
DEFINITIONS = {("attention.py", "attention"), ("loss.py", "smoothed_loss")}
RANKING = ("hypotheses.py", "most_likely")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("copying"))


def called(function: Callable[[], object]) -> set[tuple[str, str]]:
    """The functions of `regard` that run, in all threads: each with its file, below the package."""
    codes = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        codes.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    paths = [(Path(code.co_filename), code.co_name) for code in codes]
    return {(str(p.relative_to(SOURCE)), name) for p, name in paths if p.is_relative_to(SOURCE)}


def files_of_arithmetic(functions: set[tuple[str, str]]) -> set[str]:
    prefix = "arithmetic/"
    return {file.removeprefix(prefix) for file, _ in functions if file.startswith(prefix)}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_training_and_validation_call_the_definitions_alone(
    data: Path, tmp_path: Path, precision: str
) -> None:
    recipe = RECIPE.but(arithmetic="plain", precision=precision, steps=3, validate_every=3)
    functions = called(lambda: trained(tmp_path / "run", data, recipe))
    assert functions >= DEFINITIONS | {("training.py", "update"), ("arithmetic/plain.py", "adam")}
    assert RANKING not in functions
    assert files_of_arithmetic(functions) == {"plain.py", "choose.py"}

    validate = validator(data, recipe)
    functions = called(lambda: trained(tmp_path / "validated", data, recipe, validate))
    assert functions >= {*DEFINITIONS, RANKING, ("measure/validation.py", "_sums_at_once")}
    assert files_of_arithmetic(functions) == {"plain.py", "choose.py"}


def test_a_run_computes_by_others_unless_it_is_told(data: Path, tmp_path: Path) -> None:
    recipe = RECIPE.but(steps=3, validate_every=3)
    validate = validator(data, recipe)
    functions = called(lambda: trained(tmp_path / "run", data, recipe, validate))
    assert not functions & {*DEFINITIONS, RANKING}
    assert files_of_arithmetic(functions) & {"cpu.py", "cuda.py"}
