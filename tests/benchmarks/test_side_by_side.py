"""Contenders take turns; one that is absent or fails does not stop the others."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import side_by_side as sides
from side_by_side import Contender, Spread, compare, ratio

WORKER = """
import subprocess
import sys
import time
sys.path.insert(0, {peers!r})
from worker import serve

def turn(request):
    print("a library says something")
    with open({log!r}, "a") as log:
        log.write(sys.argv[1])
    if sys.argv[1] == "with a child":
        script = "import time; held = b'x' * 10**8; time.sleep(1)"
        subprocess.run([sys.executable, "-c", script])
    if sys.argv[1] == "waits":
        time.sleep(0.5)
    if sys.argv[1] == "f" and request["round"] == 2:
        raise ValueError("out of ideas")
    return {{"seconds": 2.0, "tokens": 10 * request["round"]}}

print("a library says something", file=sys.stderr)
serve(lambda: ({{"name": sys.argv[1], "version": {{}}, "precision": "torch.float32"}}, turn))
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def script(tmp_path: Path, log: Path) -> str:
    path = tmp_path / "worker.py"
    path.write_text(WORKER.format(peers=str(sides.PEERS), log=str(log)))
    return str(path)


def test_contenders_take_turns_and_the_first_round_does_not_count(script: str, log: Path) -> None:
    contenders = [Contender("one", script, ["a"]), Contender("two", script, ["b"])]
    results, failures = compare(contenders, rounds=2, threads=1)
    assert not failures
    assert log.read_text() == "ababab"
    assert results["one"].about == {"name": "a", "version": {}, "precision": "torch.float32"}
    assert results["two"].per_second("tokens") == [5.0, 10.0]
    assert all(turn["peak_memory"] > 1e6 for turn in results["one"].turns)


def test_the_memory_of_a_contenders_own_processes_counts(script: str) -> None:
    contenders = [Contender("alone", script, ["a"]), Contender("two", script, ["with a child"])]
    results, _ = compare(contenders, rounds=1, threads=1)
    alone, two = (result.turns[0]["peak_memory"] for result in results.values())
    assert 1.0e8 < two - alone < 1.3e8


def test_work_elsewhere_is_noticed(script: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            results, _ = compare([Contender("one", script, ["waits"])], rounds=1, threads=1)
        finally:
            busy.kill()
    assert results["one"].turns[0]["busy_elsewhere"] > 0.3


def test_a_contender_that_fails_is_named_and_the_others_go_on(
    script: str, capfd: pytest.CaptureFixture[str]
) -> None:
    contenders = [
        Contender("absent", script, environment="no-such-environment"),
        Contender("without script", script + ".no"),
        Contender("failing", script, ["f"]),
        Contender("well", script, ["w"]),
    ]
    results, failures = compare(contenders, rounds=3, threads=1)
    assert list(results) == ["well"]
    assert len(results["well"].turns) == 3
    assert failures["absent"].startswith("skipped: there is no .benchmark/no-such-environment")
    assert "make bench-setup" in failures["absent"]
    assert "No such file" in failures["without script"]
    assert failures["failing"].startswith("failed: it ended with status 1")
    assert failures["failing"].endswith("ValueError: out of ideas")
    said = capfd.readouterr().err
    assert all(f"{name}: {why}" in said for name, why in failures.items())


def test_settings_of_malloc_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "12345")
    variables = sides._variables(threads=3)
    assert not any(name.startswith("MALLOC_") for name in variables)
    assert variables["OMP_NUM_THREADS"] == "3"


def test_a_ratio_is_taken_round_by_round() -> None:
    assert ratio([20.0, 30.0, 8.0], [10.0, 10.0, 2.0]) == Spread(3.0, 2.0, 4.0)
    assert Spread.of([1.0, 5.0, 2.0]).text(".1f") == "2.0 [1.0, 5.0]"
    with pytest.raises(ValueError):
        ratio([1.0], [1.0, 2.0])


def test_only_the_contenders_that_are_named_run() -> None:
    contenders = [Contender("a", ""), Contender("b", "")]
    assert sides.chosen(contenders, None) == contenders
    assert sides.chosen(contenders, ["b"]) == contenders[1:]
    with pytest.raises(SystemExit, match="no contender 'c'; there are: a, b"):
        sides.chosen(contenders, ["c"])


def test_a_record_says_when_and_where(tmp_path: Path) -> None:
    record = sides.circumstances(threads=1) | {"speed": 3}
    path = sides.keep(record, tmp_path / "results", "training-tiny")
    assert path.name == f"{record['date']}-training-tiny.json"
    kept = json.loads(path.read_text())
    assert kept["speed"] == 3
    assert kept["commit"] and kept["machine"]["processor"]
    assert kept["machine"]["threads"] == 1
    assert len(kept["machine"]["load_average_before"]) == 3
