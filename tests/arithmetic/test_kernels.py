"""The kernels of a GPU, as Triton's interpreter computes them on a CPU.

Triton comes with PyTorch for CUDA. Elsewhere `pip install triton` lets these tests run; on a GPU,
benchmarks/gpu.py compares the compiled kernels with the definitions. Triton can compile for a GPU
that is not there, so the code of each kernel is compiled here, too.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SUMMARY = """
from regard.arithmetic.kernels.summary import TOKENS, summary_kernel as mine
from regard.arithmetic.ranking import BLOCK, summary

for vocabulary in (BLOCK, 1000, TOKENS, TOKENS + 1, 2 * TOKENS + 903):
    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.randn(5, vocabulary).mul_(7).to(dtype)
        logits[1] = -torch.inf
        logits[2, : vocabulary // 2] = -torch.inf
        logits[3, 4] = torch.nan
        found, right = mine(logits, BLOCK), summary(logits, 2**20)
        numbers = [0, 1, 2, 4]
        assert torch.equal(found[0][numbers], right.maxima[numbers])
        torch.testing.assert_close(found[1][numbers], right.totals[numbers], rtol=0, atol=1e-5)
        assert found[1].isnan().tolist() == [False] * 3 + [True, False]
"""
ATTEND = """
from regard.arithmetic.kernels.attend import attend_kernel as attend
from regard.attention import attention

for heads, queries, keys, slots, d_k, d_v, masks in (
    (2, 4, 64 + 6, 64 + 16, 64, 64, 4),
    (3, 1, 5, 5, 24, 40, 1),
    (2, 7, 2 * 64 + 1, 2 * 64 + 1, 16, 8, 7),
    (2, 16, 30, 33, 64, 64, 1),
):
    allowed = torch.rand(3, 1, masks, keys) < 0.5
    allowed[0, :, 0] = False
    allowed[1, :, :, : keys - 1] = False
    # The queries are a part of a joined product, as in self-attention.
    query = torch.randn(3, queries, heads, 2 * d_k)[..., :d_k].transpose(1, 2)
    stored, values = torch.randn(3, heads, slots, d_k), torch.randn(3, heads, slots, d_v)
    found = attend(query, stored, values, allowed)  # the interpreter cannot multiply in bf16
    right, _ = attention(query, stored[:, :, :keys], values[:, :, :keys], allowed)
    torch.testing.assert_close(found, right, rtol=0, atol=2e-6)
    assert not found[0, :, 0].any()
    two = query[1:], stored[1:], values[1:]
    assert torch.equal(attend(*two, allowed[2:])[1], found[2])  # one mask for all
    query[2] = torch.nan
    assert attend(query[2:], stored[2:], values[2:], torch.ones_like(allowed[2:])).isnan().all()
    assert not attend(query, stored, values, allowed[..., :0]).any()  # no keys
    assert attend(query[:0], stored[:0], values[:0], allowed[:0]).shape == (0, heads, queries, d_v)
"""
RANKING = """
from regard.arithmetic.kernels.ranking import ranking_kernel as mine
from regard.hypotheses import ranking

for number, count in ((5, 8), (64, 3), (1160, 8), (12, 4), (4097, 2)):
    values = torch.randn(7, number).mul_(2).round()  # many are equal
    values[0] = -torch.inf
    values[1, ::2] = torch.nan
    values[1, 1::2] = -values[1, 0]
    values[2] = 0.0
    values[2, ::3] = -0.0
    values[3, 1:] = -torch.inf
    values[4, 2] = torch.inf
    assert torch.equal(mine(values, count), ranking(values, count))
"""
SOFTMAX_GRADIENT = """
from regard.arithmetic.kernels.softmax_gradient import softmax_gradient_kernel

for vocabulary in (37, 8192, 9000):
    for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 2**-7)):
        logits = torch.randn(7, vocabulary + 3).mul_(3).to(dtype)[:, :vocabulary]
        labels = torch.randint(0, vocabulary, (7, 1))
        p = logits.double().softmax(1)
        logit, log_p = logits.gather(1, labels).float(), p.gather(1, labels).log().float()
        right = p.scatter_add_(1, labels, torch.full((7, 1), -0.9).double())
        found = softmax_gradient_kernel(logits, labels, 0.1)
        torch.testing.assert_close(logits.double(), right, rtol=error, atol=1e-6)
        assert torch.equal(found[0], logit)
        torch.testing.assert_close(found[1], log_p, rtol=0, atol=1e-5)
        logits[2, 3] = torch.nan
        found = softmax_gradient_kernel(logits[1:4], labels[1:4], 0.1)
        assert found[1].isnan().flatten().tolist() == [False, True, False]
"""
ADD_NORM = """
from regard.arithmetic.kernels.add_norm import add_norm_kernel as add_norm

for width in (32, 40, 1100):
    for dtype, error in ((torch.float32, 1e-6), (torch.bfloat16, 2**-7)):
        x, y = torch.randn(2, 3, 7, width).mul_(3).add_(1).to(dtype)
        norm = torch.nn.LayerNorm(width, eps=1e-6)
        norm.weight.data.normal_(), norm.bias.data.normal_()
        right = norm.double()(x.double() + y.double())
        found = add_norm(x.transpose(0, 1), y.transpose(0, 1), norm.to(dtype)).transpose(0, 1)
        torch.testing.assert_close(found.double(), right, rtol=error, atol=8 * error)
        x[1, 2, 3] = torch.nan
        found = add_norm(x[1, 2:4], y[1, 2:4], norm)
        assert found[0].isnan().all() and not found[1].isnan().any()
"""
WRITE = """
from regard.arithmetic.kernels.write import write_kernel
from regard.cache import Cache

for heads, d_k, d_v, dtype in ((2, 8, 8, torch.float32), (3, 24, 5, torch.bfloat16)):
    both = torch.randn(2, heads, 9, d_k), torch.randn(2, heads, 9, d_v)
    new = torch.randn(2, 4, heads, d_k + d_v).to(dtype).transpose(1, 2).split([d_k, d_v], dim=3)
    places = torch.tensor([[4, 2, 0, 8], [1, 3, 4, 7]])
    right = Cache(*(one.clone() for one in both))
    right.write(*new, places)
    assert write_kernel(*both, *new, places)
    assert torch.equal(both[0], right.keys)
    assert torch.equal(both[1], right.values)
"""
COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from regard.arithmetic.kernels import add_norm, attend, ranking, softmax_gradient, summary, write

BASE = dict(heads=8, d_k=64, d_v=64, k_width=64, v_width=64)
OF_BASE = dict(scale=0.125, of_head=64, of_query=1536, some=16, size=attend._SLOTS)


def compile_for_a_gpu(kernel, types, **constants):
    types = dict(types.items() | {name: "constexpr" for name in constants}.items())
    source = ASTSource(
        kernel,
        {name: types[name] for name in kernel.arg_names},
        {(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


for x in "*bf16", "*fp32":
    lengths = dict.fromkeys(("queries", "count", "capacity"), "i32")
    tensors = dict.fromkeys(("query", "keys", "values", "output"), x)
    for each in (True, False):
        types = lengths | tensors | {"allowed": "*i1"}
        compile_for_a_gpu(attend._attend, types, each_query=each, **BASE, **OF_BASE)
    compile_for_a_gpu(
        write._write,
        {"store": x, "new": x, "places": "*i64", "capacity": "i32"},
        **dict(heads=8, count=4, width=64, of_sentence=6144, of_head=64, of_new=1536, size=512),
    )
    tensors = dict.fromkeys(("x", "y", "weight", "bias", "output"), x)
    compile_for_a_gpu(add_norm._add_norm, tensors, width=512, epsilon=1e-6, size=512)
    compile_for_a_gpu(
        softmax_gradient._softmax_gradient,
        {"logits": x, "labels": "*i64", "right": "*fp32", "log_p": "*fp32"},
        **dict(vocabulary=37_000, of_row=37_000, confidence=0.9, size=softmax_gradient._LOGITS),
    )
    compile_for_a_gpu(
        summary._summarize,
        {"logits": x, "maxima": "*fp32", "totals": "*fp32"},
        **dict(vocabulary=37_000, blocks=290, size=128, at_once=summary.TOKENS),
    )
compile_for_a_gpu(
    ranking._rank, {"values": "*fp32", "places": "*i64", "number": "i32"}, count=8, size=2048
)
"""


def run(code: str, **variables: str) -> None:
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", code]
    environment = os.environ | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton here")
def test_kernels_compute_the_definitions() -> None:
    """One process tests all of them, because PyTorch takes longer to import than most tests."""
    codes = {
        "summary": SUMMARY,
        "attend": ATTEND,
        "ranking": RANKING,
        "softmax_gradient": SOFTMAX_GRADIENT,
        "add_norm": ADD_NORM,
        "write": WRITE,
    }
    lines = ["import torch"]
    for name, code in codes.items():
        lines.append("torch.manual_seed(1)")
        lines.append(f"exec(compile({code!r}, {name!r}, 'exec'), dict(torch=torch))")
    run("\n".join(lines), TRITON_INTERPRET="1")


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton here")
def test_kernels_can_be_compiled_for_a_gpu(tmp_path: Path) -> None:
    run(COMPILED, TRITON_CACHE_DIR=str(tmp_path))
