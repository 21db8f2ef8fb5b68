"""The kernel that summarizes logits, as Triton's interpreter computes it on a CPU.

Triton comes with PyTorch for CUDA. Elsewhere `pip install triton` lets this test run; on a GPU,
benchmarks/gpu.py compares the compiled kernel with the definition.
"""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

CODE = """
import torch
from regard.arithmetic.ranking import BLOCK, summary
from regard.arithmetic.summary_kernel import TOKENS, summarize

torch.manual_seed(1)
for vocabulary in (BLOCK, 1000, TOKENS, TOKENS + 1, 2 * TOKENS + 903):
    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.randn(5, vocabulary).mul_(7).to(dtype)
        logits[1] = -torch.inf
        logits[2, : vocabulary // 2] = -torch.inf
        mine, right = summarize(logits, BLOCK), summary(logits, 2**20)
        assert torch.equal(mine[0], right.maxima)
        torch.testing.assert_close(mine[1], right.totals, rtol=0, atol=1e-5)
        logits[3, 4] = torch.nan
        assert summarize(logits, BLOCK)[1].isnan().tolist() == [False] * 3 + [True, False]
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton here")
def test_the_kernel_computes_the_definition() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", CODE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
