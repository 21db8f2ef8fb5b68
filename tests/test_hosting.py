"""Training from Python changes nothing in the process of its caller, and little can change it."""

import gc
import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import regard
from regard.corpus import write_corpus
from regard.errors import RegardError
from regard.files.tensors import read_tensors
from regard.optimizer import FlatAdam
from regard.run.model_directory import open_model
from regard.view.recording import record_attention
from test_api import TINY

BEGIN = {"source": "train.en", "target": "train.de", "recipe": "small", "changes": TINY}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "train", seed=1, sentences=200)
    return tmp_path


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_tensors(run / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_random_numbers_of_the_caller_and_of_training_are_apart() -> None:
    before = torch.get_rng_state()
    quiet = regard.train(**BEGIN, out="quiet")
    assert torch.equal(torch.get_rng_state(), before)
    regard.load(quiet)
    assert torch.equal(torch.get_rng_state(), before)
    drawing = regard.train(**BEGIN, out="drawing", progress=lambda _: torch.rand(3))
    assert same(quiet, drawing)


@pytest.mark.parametrize(
    "off", [torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)]
)
def test_it_trains_where_gradients_are_turned_off(
    off: Callable[[], AbstractContextManager[None]],
) -> None:
    with off():
        run = regard.train(**BEGIN, out="run")
        assert not torch.is_grad_enabled()
    assert weights(run)


def test_the_default_dtype_changes_no_model() -> None:
    usual = regard.train(**BEGIN, out="usual")
    expected = regard.load(usual).translate(["The dog sleeps."])
    ours = weights(usual)
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        torch.set_default_dtype(dtype)
        try:
            assert regard.load(usual).translate(["The dog sleeps."]) == expected
            loaded = dict(open_model(usual).network.named_parameters())
            regard.train(**BEGIN, out=f"trained by {dtype}")
        finally:
            torch.set_default_dtype(torch.float32)
        assert all(torch.equal(ours[name], loaded[name]) for name in ours)


@pytest.mark.parametrize("out", ["prepared", "run"])
def test_an_error_of_the_callback_is_raised_as_it_is(out: str) -> None:
    def unreachable(_: Any) -> None:
        raise ConnectionError("the tracker does not answer")

    with pytest.raises(ConnectionError, match="the tracker does not answer"):
        if out == "run":
            regard.train(**BEGIN, out=out, progress=unreachable)
        else:
            regard.prepare(source="train.en", target="train.de", out=out, progress=unreachable)
    assert not Path(out, "manifest.json").exists()


def test_a_kept_interrupt_keeps_no_model() -> None:
    def interrupt(record: dict[str, Any]) -> None:
        if record["event"] == "step":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as kept:
        regard.train(**BEGIN, out="run", progress=interrupt)
    gc.collect()
    assert kept.value.__context__ is not None
    assert not any(isinstance(thing, FlatAdam) for thing in gc.get_objects())


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_afterwards_freed_memory_goes_back_to_the_system() -> None:
    def pages() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    regard.train(**BEGIN, out="run")
    large = np.ones(2**25)
    held = pages()
    del large
    assert (held - pages()) * os.sysconf("SC_PAGE_SIZE") > 200e6


def test_threads_are_no_more_than_a_container_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.machine.cores.usable_cores", lambda: 1)
    started: list[dict[str, Any]] = []
    torch.set_num_threads(before := 2)
    try:
        regard.train(**BEGIN, out="run", progress=started.append)
        assert torch.get_num_threads() == before
    finally:
        torch.set_num_threads(1)
    assert next(one["threads"] for one in started if one["event"] == "start") == 1


def test_numbers_of_numpy_are_numbers_and_a_path_is_a_file(folder: Path) -> None:
    changes = TINY | {"training.steps": np.int64(2), "model.dropout": np.float32(0.25)}
    run = regard.train(**BEGIN | {"changes": changes}, out="run")
    assert regard.load(run).recipe
    (folder / "small").write_text('base = "small"\n\n[training]\nsteps = 3\n')
    other = regard.train(**BEGIN | {"recipe": Path("small"), "changes": {
        field: value for field, value in TINY.items() if field != "training.steps"
    }}, out="other")  # fmt: skip
    assert "steps = 3" in (other / "recipe.toml").read_text()
    for value, said in ({2}, r"\{2\}"), (None, "None"), (np.ones(2), r"array\(\[1., 1.\]\)"):
        with pytest.raises(TypeError, match=f"{said} is no value of a field"):
            regard.train(**BEGIN | {"changes": {"training.steps": value}}, out="third")
    with pytest.raises(RegardError, match="given: '𠀀'"):
        regard.train(**BEGIN | {"changes": {"search.penalty": "𠀀"}}, out="third")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_attention_is_recorded_however_a_text_is_decoded(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.decoding.COPIES_FROM", 1)
    monkeypatch.setattr("regard.decoding.FEW_FROM", 1)
    run = regard.train(**BEGIN, out="run")
    translator = regard.load(run, precision=precision) if precision != "fp32" else regard.load(run)
    with record_attention(translator.network) as recording:
        translator.translate(["The dog sleeps.", "The cat is big."] * 40)
    assert recording["cross"][0].shape[1] == 2
