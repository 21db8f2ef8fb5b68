"""A GPU's arithmetic, where it differs from all others; its equations are held in test_equations.

What its kernels do, a GPU alone can show.
"""

import copy
import time
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from arithmetic.cases import of_a_gpu
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.cuda import (
    ADD_NORM,
    ATTEND,
    RANKING,
    SOFTMAX_GRADIENT,
    SUMMARY,
    WRITE,
    Cuda,
    adam_in_one_pass,
    softmax_gradient_in_place,
)
from regard.arithmetic.fused import Fused
from regard.arithmetic.kernels.kernel import Kernel
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import Products
from regard.arithmetic.ranking import BLOCK, summary
from regard.attention import attention
from regard.equations import Adam, Learned, Moments
from regard.hypotheses import ranking
from regard.machine.streams import Streams
from regard.recipe import SearchRecipe
from regard.search import search
from run.killing import in_fork
from test_granules import MODELS, assert_near, sources

CONSTANTS = Adam(0.9, 0.98, 1e-9)


@given(st.integers(0, 100_000), st.integers(1, 9_000))
def test_chunks_are_of_like_size(tokens: int, most: int) -> None:
    """A short last one would read all embeddings for a few tokens."""
    by = of_a_gpu()
    by.chunk = most
    chunk = by.chunk_of(tokens)
    assert 1 <= chunk <= most
    sizes = [min(chunk, tokens - first) for first in range(0, tokens, chunk)]
    assert len(sizes) == -(-tokens // most)
    if sizes:
        assert max(sizes) - min(sizes) < len(sizes) + 1


@pytest.mark.parametrize("by", [of_a_gpu(), Cpu(Products())])
def test_the_right_entry_of_the_gradient_is_not_rounded_on_the_way(by: Fused) -> None:
    """1 - smoothing is 0.8984 in bf16; subtracted as that, it would leave an error of 0.4 %."""
    logits = torch.zeros(1, 2, dtype=torch.bfloat16)
    by.softmax_gradient(logits, torch.tensor([[0]]), 0.1)
    assert logits.double().tolist() == [[pytest.approx(0.5 - 0.9, rel=2**-9), 0.5]]


def test_the_gradient_of_the_softmax_is_computed_by_its_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits, labels = torch.randn(3, 5), torch.tensor([[4], [0], [2]])
    right = logits.clone()
    logit, log_p = of_a_gpu().softmax_gradient(right, labels, 0.1)

    def kernel(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        logits.copy_(right + smoothing)
        return logit + 1, log_p + 2

    monkeypatch.setattr(SOFTMAX_GRADIENT, "run", kernel)
    found = of_a_gpu().softmax_gradient(logits, labels, 0.1)
    assert torch.equal(logits, right + 0.1)
    assert torch.equal(found[0], logit + 1)
    assert torch.equal(found[1], log_p + 2)
    columns = torch.randn(5, 3).t()  # the logits of a row are not side by side: PyTorch computes
    found = of_a_gpu().softmax_gradient(columns, labels, 0.1)
    assert not torch.equal(columns, right + 0.1)


def test_the_gradient_of_the_softmax_is_an_operation_that_can_be_compiled() -> None:
    torch.library.opcheck(
        softmax_gradient_in_place, (torch.randn(3, 5), torch.tensor([[4], [0], [2]]), 0.1)
    )


def test_threads_do_not_change_each_others_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch keeps one choice of kernels for all threads, and restores it after each use."""
    attend, allowed = F.scaled_dot_product_attention, []

    def slow(*args: Any) -> Tensor:
        time.sleep(0.001 * (len(allowed) % 3))
        allowed.append(torch.backends.cuda.cudnn_sdp_enabled())
        return attend(*args)

    monkeypatch.setattr(F, "scaled_dot_product_attention", slow)
    by = Cuda(learning=False)
    mask = by.mask(torch.ones(1, 1, 3, 3, dtype=torch.bool))
    x = torch.randn(2, 4, 3, 8)
    found = list(Streams(torch.device("cpu"), 3).map(lambda i: by.attend(x, x, x, mask), range(60)))
    assert allowed == [False] * 60
    assert torch.backends.cuda.cudnn_sdp_enabled()  # as it was
    right = PLAIN.attend(x, x, x, PLAIN.mask(mask.allowed))
    for one in found:
        torch.testing.assert_close(one, right)


def state() -> tuple[torch.Tensor, torch.Tensor, Moments]:
    torch.manual_seed(1)
    master = torch.randn(101)
    moments = Moments(torch.zeros(()), torch.zeros(101), torch.zeros(101))
    return master, master.bfloat16(), moments


def updated(by: Cuda, rates: tuple[float, ...] = (0.01, 0.02, 0.03)) -> list[torch.Tensor]:
    master, weights, moments = state()
    for rate in rates:
        gradient = torch.randn(101).bfloat16()
        by.adam(Learned(master, weights, gradient, moments), CONSTANTS, rate, 7)
        assert not gradient.any()
    return [master, weights, *moments]


def test_a_compiler_that_fails_leaves_adam_to_pytorch() -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("no compiler")

    by = Cuda(learning=True)
    by._one_pass = refused
    plain = updated(copy.copy(PLAIN))  # type: ignore[arg-type]
    for mine, right in zip(updated(by), plain, strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-5, atol=1e-7)
    assert by._one_pass is None


def test_memory_that_runs_out_in_adam_is_reported() -> None:
    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    by = Cuda(learning=True)
    by._one_pass = full
    with pytest.raises(torch.OutOfMemoryError):
        updated(by)


def test_adam_is_one_program_for_all_rates() -> None:
    """In a process where no shapes are checked: those checks cannot be traced."""
    in_fork(compile_adam)


def compile_adam() -> None:
    from regard.machine.compiled import compiled

    by = Cuda(learning=True)
    by._one_pass = compiled(adam_in_one_pass, backend="aot_eager")
    for mine, right in zip(updated(by), updated(of_a_gpu()), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-6, atol=1e-8)
    assert by._one_pass is not None  # nothing failed
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_a_search_by_kernels_finds_what_others_find(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels are replaced by functions that compute the same on a CPU."""
    calls: Counter[str] = Counter()

    def attend(query: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
        calls["attend"] += 1
        slots = allowed.shape[3]
        return attention(query, keys[:, :, :slots], values[:, :, :slots], allowed)[0]

    def write(
        keys: Tensor, values: Tensor, new_keys: Tensor, new_values: Tensor, places: Tensor
    ) -> bool:
        calls["write"] += 1
        sentences = torch.arange(len(places))[:, None]
        for store, new in (keys, new_keys), (values, new_values):
            store[sentences, :, places] = new.transpose(1, 2)
        return True

    def add_norm(x: Tensor, y: Tensor, norm: torch.nn.LayerNorm) -> Tensor:
        calls["add_norm"] += 1
        found: Tensor = norm(x + y)
        return found

    def rank(values: Tensor, count: int) -> Tensor:
        calls["ranking"] += 1
        return ranking(values, count)

    def summarize(logits: Tensor, block: int) -> tuple[Tensor, Tensor]:
        calls["summary"] += 1
        return tuple(summary(logits, 2**20))

    for kernel, twin in zip(
        (ATTEND, WRITE, ADD_NORM, RANKING, SUMMARY),
        (attend, write, add_norm, rank, summarize),
        strict=True,
    ):
        monkeypatch.setattr(kernel, "run", twin)
    model, recipe = MODELS["paper"](), SearchRecipe(beam=4)
    source = sources(6)
    limits = (source.segments != 0).sum(1) + 20
    right = search(model, source, limits, recipe, by=PLAIN, n_best=4)
    model.compute_by(by := Cuda(learning=False))
    assert_near(search(model, source, limits, recipe, by=by, n_best=4), right)
    steps, layers = calls["summary"], len(model.decoder)
    assert steps > 10
    assert calls["ranking"] == 4 * steps
    assert calls["attend"] == 2 * layers * steps + len(model.encoder)  # its sentences are short
    assert calls["write"] == layers * steps
    assert calls["add_norm"] == 3 * layers * steps + 2 * len(model.encoder)


def test_without_triton_there_are_no_kernels() -> None:
    """The missing module stands for one that cannot import Triton."""
    assert Kernel("unknown")(1) is None


def test_a_kernel_that_fails_is_not_tried_again_and_the_first_failure_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise RuntimeError("no C compiler\nmore lines")

    monkeypatch.setattr(Kernel, "_warned", False)
    first, second = Kernel("attend"), Kernel("write")
    first.run = second.run = fail
    assert [first(1), first(1), second(1)] == [None, None, None]
    assert len(tried) == 2
    assert [record.getMessage() for record in caplog.records] == [
        "the GPU is slower: it cannot use the kernel attend: no C compiler"
    ]


def logits_and_live() -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    logits = torch.randn(6, 700).mul_(3).to(torch.bfloat16)
    logits[1] = -torch.inf
    return logits, torch.randn(2, 3)


def test_continuations_are_ranked_by_the_kernels_summary(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, live = logits_and_live()
    by, calls = Cuda(learning=False), []

    def kernel(logits: Tensor, block: int) -> tuple[Tensor, Tensor]:
        calls.append(block)
        maxima, totals = summary(logits, 2**20)
        return maxima, totals + 0.25  # so that its effect is seen

    monkeypatch.setattr(SUMMARY, "run", kernel)
    found = by.most_likely(live, logits, (0, 1), 5)
    right = PLAIN.most_likely(live, logits, (0, 1), 5)
    assert calls == [BLOCK]
    assert torch.equal(found.tokens, right.tokens)
    torch.testing.assert_close(found.log_p, right.log_p - 0.25, rtol=0, atol=1e-5)


def test_without_its_kernels_a_search_ranks_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, live = logits_and_live()

    def refused(*_: object) -> None:
        raise RuntimeError("no compiler")

    by = Cuda(learning=False)
    for kernel in (SUMMARY, RANKING):
        monkeypatch.setattr(kernel, "run", refused)
    found = by.most_likely(live, logits, (0, 1), 5)
    right = PLAIN.most_likely(live, logits, (0, 1), 5)
    for mine, other in zip(found, right, strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-5)
    assert SUMMARY.run is None
    assert RANKING.run is None

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setattr(SUMMARY, "run", full)
    with pytest.raises(torch.OutOfMemoryError):
        by.most_likely(live, logits, (0, 1), 5)
