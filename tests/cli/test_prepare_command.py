import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.refusing import forked, refused, regard
from regard.cli.prepare import prepare
from regard.cli.preparing import ended_by_sigterm
from regard.corpus import write_treebank
from regard.data.pairs import Pairs
from regard.errors import DataError

COMMAND = typer.Typer()
COMMAND.command()(prepare)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for side in ("en", "de"):
        (tmp_path / side).write_text("".join(f"{side} {i}\n" for i in range(53)), "utf-8")
    return [
        *("--source", str(tmp_path / "en"), "--target", str(tmp_path / "de")),
        *("--out", str(tmp_path / "out")),
    ]


def test_results_go_to_stdout_and_progress_to_stderr(files: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(COMMAND, [*files, "--recipe", "base", "--set", "data.held_out=3"])
    assert result.exit_code == 0
    assert "50 pairs of 53" in result.stdout
    assert "3 held out" in result.stdout
    assert result.stdout.endswith("/out --out runs/x\n")
    assert "53 pairs" in result.stderr
    assert all(stage in result.stderr for stage in ("checking", "learning", "encoding"))
    assert "counting" not in result.stderr  # the recipe is given, so nothing is chosen for the text
    assert len(Pairs.open(tmp_path / "out", "train")) == 50


def test_quiet_says_nothing_on_stderr(files: list[str]) -> None:
    result = CliRunner().invoke(COMMAND, [*files, "-q"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.endswith("/out --out runs/x --time 1h\n")


def test_the_counting_for_a_recipe_is_shown(files: list[str]) -> None:
    result = CliRunner().invoke(COMMAND, files)
    assert "counting: 100%, 53 pairs" in result.stderr


def test_a_refusal_comes_before_anything_is_counted(files: list[str], tmp_path: Path) -> None:
    result = CliRunner().invoke(COMMAND, [*files, "--source", str(tmp_path), "--target", "x"])
    assert isinstance(result.exception, DataError)
    assert f"{tmp_path}: is a directory" in str(result.exception)


def test_a_folder_whose_name_is_not_utf_8(files: list[str], tmp_path: Path) -> None:
    out = os.fsencode(tmp_path) + b"/\xff"
    # In most locales standard output refuses what is not UTF-8, as it does here.
    done = subprocess.run(
        [sys.executable, "-m", "regard", "prepare", *files[:4], "--out", out, "-q"],
        capture_output=True,
        env=os.environ | {"PYTHONIOENCODING": "utf-8:strict"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert out + b": done; " in done.stdout


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_all_of_its_processes_leaves_nothing(
    files: list[str], tmp_path: Path, signum: int, status: int
) -> None:
    program = (
        "from regard.cli.main import main; from regard.data import aligned, prepare\n"
        "aligned._BLOCK_PAIRS, prepare.BYTES_PER_WORKER = 1, 1\n"
        "main()"
    )
    for side in ("en", "de"):
        (tmp_path / side).write_text("".join(f"{side} {i}\n" for i in range(10_000)), "utf-8")
    with subprocess.Popen(
        [sys.executable, "-c", program, "prepare", *files, "--quiet", "--workers", "3"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not any(tmp_path.glob(".out.*.partial/*/digests")):
            time.sleep(0.02)
        os.killpg(process.pid, signum)
        said = process.communicate()
    assert process.returncode == status
    assert said == ("", "regard: interrupted\n" if signum == signal.SIGINT else "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["de", "en"]


def test_pairs_that_are_trained_on_and_validate_are_told(files: list[str], tmp_path: Path) -> None:
    for side in ("en", "de"):
        (tmp_path / side).write_text("".join(f"{side} {i}\n" for i in range(60)), "utf-8")
    valid = ["--valid-source", tmp_path / "en", "--valid-target", tmp_path / "de"]
    small = ["--set", "tokenizer.vocabulary=300", "--out", tmp_path / "both"]
    said = "60 training pairs are also in the validation files, which have 60 pairs: the model"
    done = regard("prepare", *files[:4], *valid, *small)
    assert done.status == 0
    assert said in done.stderr
    run = ["--out", tmp_path / "run", "--set", "training.steps=1", "--recipe", "small"]
    tiny = ["--set", "model.d_model=16", "--set", "model.d_ff=16", "--set", "model.layers=1"]
    begun = forked("train", *files[:4], *valid, *small[:2], *run, *tiny, "--plan")
    assert begun.status == 0, begun.stderr
    assert said in begun.stderr


def test_trees_are_prepared_as_training_would(tmp_path: Path) -> None:
    for name, seed, count in (("gold", 1, 60), ("silver", 2, 30)):
        write_treebank(tmp_path / name, seed, count)
    given = ["--trees", tmp_path / "gold", "--silver", tmp_path / "silver", "--silver-share", "0.5"]
    small = [
        f"--set={assignment}"
        for assignment in (
            *("tokenizer.vocabulary=400", "training.steps=1", "model.layers=1", "model.heads=2"),
            *("model.d_model=16", "model.d_ff=16"),
        )
    ]
    made = regard("prepare", *given, *small, "--out", tmp_path / "data")
    assert made.status == 0, made.stderr
    # Of 60 trees six are held out, and 54 remain; 54 copies of the 30 silver trees are their share.
    assert "108 trees of 114" in made.stdout
    trained = regard("train", "-q", "--task", "parse", *given, *small, "--out", tmp_path / "run")
    assert trained.status == 0, trained.stderr
    for array in sorted((tmp_path / "data").glob("*.npy")):
        assert array.read_bytes() == (tmp_path / "run/data" / array.name).read_bytes()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "nothing to prepare: give --source and --target, or --trees"),
        (["--source", "a"], "give them in pairs"),
        (["--trees", "a", "--source", "b", "--target", "c"], "--trees is for parsing"),
        (["--source", "b", "--target", "c", "--silver", "a"], "go with gold trees"),
        (["--trees", "a", "--silver-share", "0.5"], "give --silver too"),
        (["--trees", "a", "--workers", "2"], "--workers is for text"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    given: list[str], problem: str, tmp_path: Path
) -> None:
    result = regard("prepare", *given, "--out", tmp_path / "out")
    assert (result.status, problem in result.stderr) == (2, True)
    assert not (tmp_path / "out").exists()


def test_text_in_the_place_to_be_replaced_is_refused(files: list[str], tmp_path: Path) -> None:
    assert regard("prepare", *files, "--quiet").status == 0
    out = tmp_path / "out"
    inside = [str(out / f"valid.{side}.txt") for side in ("source", "target")]
    before = {path: path.read_bytes() for path in out.iterdir()}
    said = refused("prepare", "--source", inside[0], "--target", inside[1], "--out", out)
    assert said == f"{inside[0]}: is in {out}, which will be replaced: choose another --out"
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_signal_that_comes_in_c_code_is_not_lost() -> None:
    """An exception that is raised in a function that C code calls goes no further."""
    before = signal.getsignal(signal.SIGTERM)
    call = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGTERM))
    with pytest.raises(SystemExit, match="143"), ended_by_sigterm():
        call()
    assert signal.getsignal(signal.SIGTERM) == before
