"""`regard train` as a user runs it, stopped in every way there is."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from cli.refusing import Result, forked, regard, running
from regard.recipe import Recipe
from regard.run.checkpoints import newest
from regard.run.journal import read_journal
from run.copying import RECIPE, needs_int8, strings
from run.killing import Fork, in_fork, killed_at

STEPS = 150  # some seconds, in which to be stopped
IsRunning = Callable[[], bool]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small corpus and a recipe for it."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "digits").write_text("\n".join(strings(97, seed=1)), "utf-8")
    (folder / "recipe.toml").write_text(
        RECIPE.but(steps=STEPS, validate_every=70, max_length=61).to_toml()
    )
    return folder


def arguments(text: Path, out: Path, *others: str) -> list[str]:
    return [
        *("train", "--out", str(out), "--recipe", str(text / "recipe.toml"), "--threads", "1"),
        *("--source", str(text / "digits"), "--target", str(text / "digits"), *others),
    ]


def run_here(arguments: list[str]) -> None:
    """The command, in a process that has the libraries already; silent."""
    with Path(os.devnull).open("r+b") as nothing:
        for stream in (0, 1, 2):
            os.dup2(nothing.fileno(), stream)
    from regard.cli.main import main

    sys.argv = ["regard", *arguments]
    main()


def finish(arguments: list[str]) -> None:
    in_fork(run_here, arguments)


@contextmanager
def started(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    """`python -m regard`, which is gone after the block."""
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *arguments],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def stop_new(arguments: list[str], signum: int, wait: Callable[[IsRunning], None]) -> Result:
    """What a new `python -m regard` leaves that is stopped by this signal after `wait`."""
    with started(arguments) as process:
        wait(lambda: process.poll() is None)
        process.send_signal(signum)
        stdout, stderr = process.communicate()
    return Result(process.returncode, stdout, stderr)


def stop_fork(arguments: list[str], signum: int, wait: Callable[[IsRunning], None]) -> Result:
    """What a fork of a process that has the libraries leaves, stopped in this way."""
    with running(*arguments) as process:
        wait(process.is_running)
        process.send_signal(signum)
        return process.result(60)


def wait_until(happened: Callable[[], bool], is_running: IsRunning) -> None:
    deadline = time.monotonic() + 300
    while not happened():
        assert is_running()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def step_of(run: Path) -> int:
    """The last step that the journal tells of."""
    path = run / "journal.jsonl"
    return max((record["step"] for record in read_journal(path)), default=0) if path.exists() else 0


def result(run: Path) -> tuple[bytes, list[dict[str, object]]]:
    """The model, and what the journal says but for what the clock tells."""
    timed = ("time", "seconds", "tokens_per_second")
    records = [
        {key: value for key, value in record.items() if key not in timed}
        for record in read_journal(run / "journal.jsonl")
        if record["event"] in ("step", "validation")
    ]
    hidden = {str(path.relative_to(run)) for path in run.rglob(".*")}
    assert hidden == {".lock"}, "something temporary stayed"
    return (run / "model.safetensors").read_bytes(), records


@pytest.fixture(scope="module")
def undisturbed(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(arguments(text, run))
    return run


def test_a_signal_saves_and_the_same_command_goes_on(
    text: Path, tmp_path: Path, undisturbed: Path
) -> None:
    run = tmp_path / "run"
    stops = (
        (stop_new, signal.SIGTERM, 143),
        (stop_fork, signal.SIGINT, 130),
        (stop_fork, signal.SIGHUP, 129),
    )
    for start, signum, status in stops:
        before = step_of(run)
        stopped = start(
            arguments(text, run, "--quiet"),
            signum,
            partial(wait_until, lambda before=before: step_of(run) > before),
        )
        [saved] = newest(run / "checkpoints", 1, pytest.fail)
        said = (
            f"{run}: stopped at step {saved.step}, which is saved; "
            "the same command does what is left\n"
        )
        assert stopped == Result(status, "", said)
        assert before < saved.step < STEPS
    finish(arguments(text, run))
    assert result(run) == result(undisturbed)
    starts = [r["step"] for r in read_journal(run / "journal.jsonl") if r["event"] == "start"]
    assert starts[0] == 0 < starts[1] < starts[2] < starts[3] == saved.step


def test_kill_minus_nine_costs_only_the_steps_since_the_last_checkpoint(
    text: Path, tmp_path: Path, undisturbed: Path
) -> None:
    """In the middle of a save, and at any moment."""
    run = tmp_path / "run"
    saves, moment = run / "checkpoints", random.Random(time.time_ns()).randint(5, STEPS // 2)

    def saving() -> bool:
        return saves.is_dir() and any(path.name.startswith(".") for path in saves.iterdir())

    for happened in (saving, lambda: step_of(run) >= moment):
        process = Fork(target=run_here, args=(arguments(text, run),))
        process.start()
        try:
            wait_until(happened, process.is_alive)
        finally:
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL
        newest(saves, 1, pytest.fail)  # whatever is there is whole
    finish(arguments(text, run))
    assert result(run) == result(undisturbed)


SHORT = ("--set", "training.steps=9", "--set", "training.validate_every=4")


@pytest.fixture(scope="module")
def short(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("short") / "run"
    finish(arguments(text, run, *SHORT))
    return run


@pytest.mark.parametrize("seed", [1, 2])
def test_power_cuts_from_beginning_to_end_change_nothing(
    text: Path, tmp_path: Path, short: Path, seed: int
) -> None:
    """While it prepares data, trains, saves, validates and makes the model: one after another."""
    draw = random.Random(seed)
    command = arguments(text, tmp_path / "cut", *SHORT)
    cuts = 0
    # Later and later, for to clear away what earlier cuts left takes its time too.
    while killed_at(draw.randint(1, 70 + 5 * cuts), tmp_path, run_here, command):
        cuts += 1
        newest(tmp_path / "cut" / "checkpoints", 1, pytest.fail)
    assert cuts > 1
    assert result(tmp_path / "cut") == result(short)


def test_a_run_of_some_seconds_ends_and_goes_on_with_more(text: Path, tmp_path: Path) -> None:
    endless = ("--set", "training.steps=1000000", "--set", "training.validate_sentences=0")
    ends = []
    for time_given in ("1s", "1s", "2s"):
        finish(arguments(text, tmp_path / "run", *endless, "--time", time_given))
        records = read_journal(tmp_path / "run" / "journal.jsonl")
        ends.append([record for record in records if record["event"] == "finish"][-1])
    assert ends[0]["step"] == ends[1]["step"] < ends[2]["step"]
    assert ends[0]["seconds"] < 2.5 > ends[2]["seconds"] - ends[0]["seconds"]


@pytest.mark.slow
def test_what_is_learned_is_right(tmp_path: Path) -> None:
    """The whole system, by its public commands: to copy strings that it has never seen."""
    unseen = strings(200, seed=2, longest=9)
    (tmp_path / "train").write_text("\n".join(strings(3000, seed=1, longest=9)), "utf-8")
    small = {
        "model": {"layers": 1, "d_model": 32, "d_ff": 64, "heads": 4, "dropout": 0.0},
        "tokenizer": {"vocabulary": 300},
        "data": {"source_tokens": 512, "target_tokens": 512, "held_out": 100},
        "training": {"steps": 200, "warmup_steps": 70, "save_every": 40, "average": 3}
        | {"validate_every": 100},
        "search": {"beam": 2},
    }
    changes = [
        f"--set={section}.{key}={value}"
        for section, fields in small.items()
        for key, value in fields.items()
    ]

    corpus, run = tmp_path / "train", tmp_path / "run"
    told = forked("train", "--source", corpus, "--target", corpus, "--out", run, "-q", *changes)
    assert told == Result(0, f"{run}: done; translate with: regard translate {run} < in.txt\n", "")
    outputs = forked("translate", run, stdin="\n".join(unseen).encode()).stdout.splitlines()
    right = sum(output == line for output, line in zip(outputs, unseen, strict=True))
    assert right >= 0.98 * len(unseen)


def test_deterministic_changes_nothing_on_a_cpu(text: Path, tmp_path: Path) -> None:
    """There all operations are, and none is refused."""
    few = ("--set", "training.steps=5")
    for name, more in (("plain", ()), ("deterministic", ("--deterministic",))):
        finish(arguments(text, tmp_path / name, *few, *more))
    plain, deterministic = (
        (tmp_path / name / "model.safetensors").read_bytes() for name in ("plain", "deterministic")
    )
    assert plain == deterministic


@needs_int8
def test_a_run_in_int8_says_so(text: Path, tmp_path: Path) -> None:
    finish(
        arguments(
            text, tmp_path, *("--set", "training.precision=int8", "--set", "training.steps=2")
        )
    )
    start, *_ = read_journal(tmp_path / "journal.jsonl")
    assert str(start["dtype"]).startswith("int8 and ")


def test_a_model_is_trained_on_with_text_of_its_own(text: Path, tmp_path: Path) -> None:
    """It keeps its tokenizer and its recipe, but for what is set."""
    model, out = tmp_path / "model", tmp_path / "out"
    finish([*arguments(text, model), "-q", "--set", "training.steps=4"])
    (tmp_path / "letters").write_text("\n".join(strings(61, seed=4)), "utf-8")
    files = ["--source", str(tmp_path / "letters"), "--target", str(tmp_path / "letters")]
    again = ["train", "-q", "--from", str(model), *files, "--out", str(out), "--threads", "1"]
    finish([*again, "--set", "training.steps=6"])
    assert (out / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    assert Recipe.read(out / "recipe.toml") == Recipe.read(model / "recipe.toml").but(steps=6)
    records = read_journal(out / "journal.jsonl")
    assert [r["model"] for r in records if r["event"] == "begin"] == [str(model)]
    finish([*again, "--set", "training.steps=6"])  # finished: it has nothing left to do
    assert [r["event"] for r in read_journal(out / "journal.jsonl")].count("begin") == 1


def test_a_model_to_begin_with_is_not_forgotten_by_a_kill(text: Path, tmp_path: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "out"
    finish([*arguments(text, model), "-q", "--set", "training.steps=4"])
    files = ["--source", str(text / "digits"), "--target", str(text / "digits"), "--out", str(out)]

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.run.run.Run.__init__", killed)
        options = ["--from", model, *files, "--set", "training.steps=6"]
        assert regard("train", "-q", *options).status == 130
    assert (out / "data").is_dir()
    assert not (out / "checkpoints").exists()
    finish(["train", "-q", "--out", str(out)])  # as whoever goes on would type
    records = [r for r in read_journal(out / "journal.jsonl") if r["event"] == "begin"]
    assert [r["model"] for r in records] == [str(model)]
    assert Recipe.read(out / "recipe.toml").training.steps == 6
