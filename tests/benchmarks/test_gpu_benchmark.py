"""The GPU benchmark without a GPU: it says so, and `--smoke` runs every part."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_sentence() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "this measures a GPU, and PyTorch finds none here; training.py measures a CPU\n"
    )


@pytest.mark.slow
def test_every_part_runs_and_nothing_is_kept() -> None:
    before = sorted(SCRIPT.parent.glob("results/gpu-*"))
    done = run("--smoke")
    assert done.returncode == 0, done.stderr
    firsts = [line.split("  ")[0] for line in done.stdout.splitlines()]
    assert {"base", "big", "pipeline", "attention", "decoding"} <= set(firsts)
    assert {"regard", "torch.nn.Transformer", "packed ahead", "bfloat16"} <= set(firsts)
    assert sorted(SCRIPT.parent.glob("results/gpu-*")) == before
