"""What loops are made of: rounding to bf16, the largest, the exponential, masks, the cache."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from regard.arithmetic import loops
from regard.arithmetic.loops.folder import can_keep_loops, loops_folder
from regard.arithmetic.loops.numbers import exp, keep, largest, read, write
from regard.arithmetic.one_core import array

numbers = st.floats(width=32, allow_nan=False)


@njit
def rounded(x, out):
    for j in range(len(x)):
        write(out, j, read(x[j]))


@njit
def exponentials(x, out):
    for j in range(len(x)):
        out[j] = exp(x[j])


def test_every_bf16_is_read_as_it_is() -> None:
    every = torch.arange(2**16, dtype=torch.int32).to(torch.uint16)
    out = torch.empty(2**16)
    rounded(every.numpy(), out.numpy())
    expected = every.view(torch.bfloat16).float()
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=40))
def test_bf16_is_written_as_pytorch_rounds(some: list[float]) -> None:
    x = torch.tensor(some)
    out = torch.empty(len(x), dtype=torch.bfloat16)
    rounded(x.numpy(), array(out))
    torch.testing.assert_close(out, x.bfloat16(), rtol=0, atol=0)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=90))
def test_the_largest(some: list[float]) -> None:
    assert largest(np.array(some, np.float32)) == max(some)


def test_exponentials_are_near() -> None:
    x = torch.linspace(-86, 0, 100_001)
    out = torch.empty_like(x)
    exponentials(x.numpy(), out.numpy())
    error = (out.double() / x.double().exp() - 1).abs()
    assert (error < 1e-7 * (2 + x.abs())).all()
    least = np.array([-87, -88, -1e30, -np.inf], np.float32)
    exponentials(least, out.numpy()[:4])
    assert not out[:4].any()
    exponentials(np.array([np.nan], np.float32), out.numpy()[:1])
    assert out[0].isnan()


@pytest.mark.parametrize("dropped", [6554, 32768, 60000])
def test_masks_are_fair_and_independent(dropped: int) -> None:
    p = dropped / 2**16
    masks = np.empty((4000, 512), np.float32)
    for row in range(len(masks)):
        keep(2**40 + 11, row, np.uint32(dropped), 1.0, masks[row])
    assert set(np.unique(masks)) == {0.0, 1.0}
    normed = (masks - (1 - p)) / (p * (1 - p)) ** 0.5
    # means of what should have mean 0 and deviation 1, by place, by row, and of neighbours
    for means, count in (
        (normed.mean(0), 4000),
        (normed.mean(1), 512),
        ((normed[1:] * normed[:-1]).mean(1), 512),
        ((normed[:, 1:] * normed[:, :-1]).mean(0), 3999),
        ((normed[:, :256] * normed[:, 256:]).mean(0), 4000),  # of one word of random bits
    ):
        scores = means * count**0.5
        assert abs(scores.mean()) < 6 / len(scores) ** 0.5
        assert 0.85 < scores.std() < 1.15


def test_masks_of_other_seeds_are_others() -> None:
    masks = np.empty((64, 512), np.float32)
    for i in range(64):  # each bit of a seed counts, and nothing else
        keep(1 << i if i < 63 else 0, 5, np.uint32(32768), 1.0, masks[i])
    agree = (masks[:, None] == masks[None]).mean(-1) - np.eye(64)
    assert agree.max() < 0.65
    again = np.empty(512, np.float32)
    keep(1 << 7, 5, np.uint32(32768), 1.0, again)
    assert (again == masks[7]).all()


def run(code: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-W", "error", "-c", code]
    every = {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=every)
    assert done.returncode == 0, done.stderr
    return done


SUMS = (
    "from regard.arithmetic.loops.linear import column_sums; import numpy as np;"
    "column_sums(np.ones((2, 3), np.float32), sums := np.zeros(3, np.float32)); print(sums)"
)
"""A program that computes by one loop."""


def test_without_a_folder_for_the_cache_loops_are_compiled_each_time() -> None:
    """For example in a container that may not write, whoever owns the package."""
    folders = "from numba.core.caching import CacheImpl; CacheImpl._locator_classes = [];"
    assert run(folders + SUMS).stdout == "[2. 2. 2.]\n"


def test_a_user_without_a_home_may_name_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert not can_keep_loops()
    for name in ("XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
        assert can_keep_loops()
        assert loops_folder().is_relative_to(tmp_path / name)


def test_the_cache_is_of_this_version_of_the_loops(tmp_path: Path) -> None:
    """Numba looks for changes in the file of a loop, not in what the loop is made of."""
    package = tmp_path / "regard" / "arithmetic" / "loops"
    shutil.copytree(Path(loops.__file__).parent, package)
    for folder in package.parents[:2]:
        (folder / "__init__.py").touch()
    where = {
        "PYTHONPATH": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "NUMBA_CACHE_DIR": "",
    }
    first, second = run(SUMS, **where), run(SUMS, **where)
    assert first.stdout == second.stdout == "[2. 2. 2.]\n"
    assert first.stderr.startswith("compiling loops for this machine: ")
    assert not second.stderr
    numbers = package / "numbers.py"
    fp32 = "def fp32(number: Any) -> Any:\n        return number\n"
    assert fp32 in numbers.read_text()
    numbers.write_text(numbers.read_text().replace(fp32, fp32.rstrip() + " * f32(2)\n"))
    assert run(SUMS, **where).stdout == "[4. 4. 4.]\n"
    assert len(list((tmp_path / "cache" / "regard").iterdir())) == 2
