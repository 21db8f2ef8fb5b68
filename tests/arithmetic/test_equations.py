"""Every arithmetic computes every equation as `Plain` does in fp64: values and gradients."""

from collections.abc import Callable
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from arithmetic.cases import (
    D_K,
    D_MODEL,
    D_V,
    FP32,
    HEADS,
    NEAR,
    NUMBA,
    VOCABULARY,
    Case,
    Layers,
    NoLayers,
    every_case,
    skip_without,
)
from arithmetic.holding import assert_near, hold
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.int8 import Int8Products
from regard.arithmetic.plain import PLAIN
from regard.attention import attention
from regard.equations import Adam, Arithmetic, Learned, Moments
from regard.loss import smoothed_loss

ROWS = 3
seeds, sizes = st.integers(0, 2**31), st.integers(1, 37)
several = settings(deadline=None, max_examples=5)


@pytest.fixture(scope="module", params=every_case(), ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    skip_without(*request.param.needs)
    return request.param


class WithBias(Layers):
    """Layers with a bias before the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.output_bias = nn.Parameter(torch.randn(VOCABULARY))


def mask_of(*shape: int) -> Tensor:
    """A mask by which the first query of the last row may attend nowhere."""
    allowed = torch.rand(*shape) < 0.6
    allowed[-1, :, 0] = False
    return allowed


def query_key_value(queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    shapes = (queries, D_K), (keys, D_K), (keys, D_V)
    query, key, value = (torch.randn(ROWS, HEADS, *shape) for shape in shapes)
    return query, key, value


@several
@given(seeds, st.integers(1, 19), sizes, st.sampled_from([1, ROWS]), st.booleans())
def test_attend(
    case: Case, seed: int, queries: int, keys: int, masks: int, one_for_all_queries: bool
) -> None:
    torch.manual_seed(seed)
    allowed = mask_of(masks, 1, 1 if one_for_all_queries else queries, keys)

    def equation(by: Arithmetic, _: Layers, *inputs: Tensor) -> Tensor:
        return by.attend(*inputs, by.mask(allowed))

    output, gradients = hold(case, equation, *query_key_value(queries, keys), layers=NoLayers())
    nowhere = ~allowed.any(-1)[:, 0].expand(ROWS, queries)
    for found in (output, *gradients[:1]):  # [rows, heads, queries, d]
        assert not found.transpose(1, 2)[nowhere].any()


@several
@given(seeds, sizes, sizes, st.lists(st.integers(0, 5), max_size=3), st.booleans())
def test_linear(
    case: Case, seed: int, inputs: int, outputs: int, batch: list[int], relu: bool
) -> None:
    torch.manual_seed(seed)
    x = torch.randn(*(size if case.learns else size + 1 for size in batch), inputs)

    def equation(by: Arithmetic, layers: Layers, x: Tensor) -> Tensor:
        return by.linear(x, layers.inner, relu=relu)

    hold(case, equation, x, layers=Layers(inputs, outputs))


@pytest.mark.parametrize(
    ("attention", "names"),
    [
        ("attention", ("W_q", "W_k", "W_v")),
        ("cross_attention", ("W_k", "W_v")),
        ("cross_attention", ("W_q",)),
    ],
)
def test_layers_side_by_side(case: Case, attention: str, names: tuple[str, ...]) -> None:
    torch.manual_seed(1)

    def equation(by: Arithmetic, layers: Layers, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)[::2]  # its rows do not lie together
        module = getattr(layers, attention)
        return by.linear(x, *(getattr(module, name) for name in names))

    hold(case, equation, torch.randn(7, 5, D_MODEL))


def test_relu_leaves_nan_as_it_is(case: Case) -> None:
    """Training that diverges has to be noticed."""
    torch.manual_seed(1)
    layers = Layers().to(case.dtype)
    nn.init.constant_(layers.inner.bias[3:4], torch.nan)
    by = case.make(layers, layers.tokens)
    with torch.no_grad():
        found = by.linear(torch.randn(5, D_MODEL).to(case.dtype), layers.inner, relu=True)
    assert found[:, 3].isnan().all()
    assert found.isnan().sum() == 5


@several
@given(seeds, st.integers(1, 19), sizes)
def test_weigh(case: Case, seed: int, queries: int, keys: int) -> None:
    torch.manual_seed(seed)
    allowed = mask_of(ROWS, 1, queries, keys)

    def equation(by: Arithmetic, _: Layers, scores: Tensor, values: Tensor) -> Tensor:
        return by.weigh(scores, values, by.mask(allowed))

    scores, values = torch.randn(ROWS, HEADS, queries, keys), torch.randn(ROWS, HEADS, keys, D_V)
    hold(case, equation, scores, values, layers=NoLayers())


@pytest.mark.parametrize("length", [1, 6])
def test_lstm(case: Case, length: int) -> None:
    torch.manual_seed(length)

    def equation(by: Arithmetic, layers: Layers, x: Tensor) -> Tensor:
        return by.lstm(x, layers.of_input, layers.of_state)

    hold(case, equation, torch.randn(ROWS, length, D_MODEL))


def test_add_norm(case: Case) -> None:
    torch.manual_seed(1)
    x, y = torch.randn(ROWS, 5, D_MODEL), torch.randn(5, ROWS, D_MODEL)

    def equation(by: Arithmetic, layers: Layers, x: Tensor, y: Tensor) -> Tensor:
        return by.add_norm(x, y.transpose(0, 1), layers.norm)

    hold(case, equation, x, y)


def test_logits(case: Case) -> None:
    torch.manual_seed(1)
    hold(case, lambda by, layers, x: by.logits(x, layers.tokens), torch.randn(29, D_MODEL))


def test_logits_with_a_bias(case: Case) -> None:
    torch.manual_seed(1)

    def equation(by: Arithmetic, layers: Layers, x: Tensor) -> Tensor:
        return by.logits(x, layers.tokens, layers.output_bias)

    hold(case, equation, torch.randn(29, D_MODEL), layers=WithBias())


@several
@given(seeds, st.integers(1, 41), st.sampled_from([0.0, 0.1, 0.4]), st.sampled_from([1.0, 3.0]))
def test_cross_entropy(case: Case, seed: int, tokens: int, smoothing: float, factor: float) -> None:
    torch.manual_seed(seed)
    labels = torch.randint(0, VOCABULARY, (tokens,)) * (torch.rand(tokens) < 0.8)  # 0 is padding

    def equation(by: Arithmetic, layers: Layers, states: Tensor) -> Tensor:
        if hasattr(by, "chunk"):
            by.chunk = 11
        embedding = layers.tokens.weight
        smoothed, plain = by.cross_entropy(states, embedding, labels, smoothing)
        assert not plain.requires_grad
        return torch.stack([smoothed, plain])

    states = torch.randn(tokens, D_MODEL)
    upstream = torch.tensor([factor, 0.0])
    hold(case, equation, states, layers=NoLayers(), upstream=upstream)


@several
@given(seeds, st.integers(1, 41), st.sampled_from([0.0, 0.1]), st.sampled_from([0.1, 1.0, 5.0]))
def test_consistent_cross_entropy(
    case: Case, seed: int, tokens: int, smoothing: float, weight: float
) -> None:
    torch.manual_seed(seed)
    labels = torch.randint(0, VOCABULARY, (tokens,)) * (torch.rand(tokens) < 0.8)  # 0 is padding

    def equation(by: Arithmetic, layers: Layers, states: Tensor) -> Tensor:
        if hasattr(by, "chunk"):
            by.chunk = 11
        embedding = layers.tokens.weight
        losses = by.cross_entropy(states, embedding, labels, smoothing, weight)
        assert not losses[1].requires_grad
        return torch.stack(losses)

    states = torch.randn(2 * tokens, D_MODEL) / 2
    hold(case, equation, states, layers=NoLayers(), upstream=torch.tensor([1.5, 0.0]))


def test_the_losses_of_bf16_logits_are_computed_in_fp32(case: Case) -> None:
    by = case.by()
    if case.learns and by is not PLAIN and NUMBA not in case.needs:
        pytest.skip("its losses carry the rounding of a probability")
    if isinstance(by, Cpu) and isinstance(by.products, Int8Products):
        pytest.skip("its logits are rounded to 8 bits")
    torch.manual_seed(1)
    states, embedding = torch.randn(31, D_MODEL).bfloat16(), torch.randn(VOCABULARY, D_MODEL)
    labels = torch.randint(0, VOCABULARY, (31,))
    with torch.no_grad():
        logits = (states @ embedding.bfloat16().t()).float()
        _, found = by.cross_entropy(states, embedding.bfloat16(), labels, 0.1)
    torch.testing.assert_close(found, smoothed_loss(logits, labels, 0.1)[1], rtol=1e-5, atol=0)


@several
@given(seeds, st.integers(3, 700), st.integers(1, 4), st.integers(1, 8), st.data())
def test_most_likely(
    case: Case, seed: int, vocabulary: int, beams: int, count: int, data: st.DataObject
) -> None:
    torch.manual_seed(seed)
    logits = (1.5 * torch.randn(2, beams, vocabulary)).round()  # many are equal
    logits[torch.rand(2, beams, vocabulary) < 0.2] = -torch.inf
    logits[1, 0, data.draw(st.sampled_from([slice(None), slice(0)]))] = -torch.inf
    live = torch.randn(2, beams)
    live[0, data.draw(st.integers(0, beams - 1))] = -torch.inf  # an empty place
    live[1, -1], logits[1, -1] = live[1, 0], logits[1, 0]  # two hypotheses are equal
    never = tuple(data.draw(st.sets(st.integers(0, vocabulary - 1), max_size=3)))
    given = live, logits.flatten(0, 1).to(case.dtype), never, min(count, vocabulary)
    found, right = case.by().most_likely(*given), PLAIN.most_likely(*given)
    torch.testing.assert_close(found.log_p, right.log_p, rtol=1e-5, atol=1e-5)
    possible = right.log_p > -torch.inf
    assert torch.equal(found.parents[possible], right.parents[possible])
    assert torch.equal(found.tokens[possible], right.tokens[possible])


def test_a_logit_that_is_no_number_is_noticed(case: Case) -> None:
    by = case.by()
    for wrong, others in product([torch.nan, -torch.nan, torch.inf], [0.0, -torch.inf]):
        logits = torch.full((2, 300), others, dtype=case.dtype)
        logits[1, 200] = wrong
        assert by.most_likely(torch.zeros(1, 2), logits, (0, 1), 4).log_p.isnan().any()


@pytest.mark.parametrize("tokens", [7, torch.tensor(7.0)], ids=["number", "tensor"])
def test_adam(case: Case, tokens: int | Tensor) -> None:
    """Held to torch.optim.Adam in fp64; its gradients may be of either precision."""
    torch.manual_seed(1)
    by, master = case.by(), torch.randn(101)
    weights = master if case.dtype == FP32 else master.to(case.dtype)
    exact = master.double()
    adam = torch.optim.Adam([exact], betas=(0.9, 0.98), eps=1e-9)
    moments = Moments(torch.zeros(()), torch.zeros(101), torch.zeros(101))
    for rate, dtype in (0.01, FP32), (0.02, case.dtype), (0.03, case.dtype):
        gradient = torch.randn(101).to(dtype)
        exact.grad = gradient.double() / 7
        adam.param_groups[0]["lr"] = rate
        adam.step()
        learned = Learned(master, weights, gradient, moments)
        by.adam(learned, Adam(0.9, 0.98, 1e-9), rate, tokens)
        assert_near(master, exact, NEAR[FP32] / 10)
        state = adam.state[exact]
        for moment, right in zip(moments, state.values(), strict=True):
            torch.testing.assert_close(moment, right.float(), rtol=1e-5, atol=1e-7)
        assert torch.equal(weights, master.to(case.dtype))
        assert not gradient.any()


DROPOUT = 0.4


def assert_fair(kept: Tensor) -> None:
    """That the share of what is kept is within five standard deviations of the expected one."""
    share = kept.float().mean().item()
    assert abs(share - (1 - DROPOUT)) < 5 * (DROPOUT * (1 - DROPOUT) / kept.numel()) ** 0.5


def seeded(seed: int, function: Callable[..., Tensor], *given: Any) -> Tensor:
    """What the function returns if PyTorch's generator begins with this seed."""
    torch.manual_seed(seed)
    return function(*given)


def test_drop(case: Case) -> None:
    by, x = case.by(), torch.ones(67, 101, dtype=case.dtype, requires_grad=True)
    first, second, again = (seeded(seed, by.drop, x, DROPOUT) for seed in (1, 2, 1))
    kept = first > 0
    assert_fair(kept)
    assert_near(first, kept / (1 - DROPOUT), case.near)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(torch.autograd.grad(first.sum(), x)[0], first)


def test_dropout_of_attention_weights(case: Case) -> None:
    torch.manual_seed(1)
    allowed = mask_of(ROWS, 1, 53, 37)
    query, key, value = query_key_value(53, 37)

    def attend(by: Arithmetic, _: Any, *query_key_value: Tensor) -> Tensor:
        return seeded(1, by.attend, *query_key_value, by.mask(allowed), DROPOUT)

    each = torch.eye(37).expand(ROWS, HEADS, 37, 37)  # so that the output is the weights
    with torch.no_grad():
        weights = attend(case.by(), None, *(x.to(case.dtype) for x in (query, key, each)))
    kept = weights > 0
    assert_fair(kept[allowed.expand_as(kept)])

    def exactly(_: Any, __: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, allowed)[1] * kept / (1 - DROPOUT) @ value

    hold(case, attend, query, key, value, exactly=exactly)


def test_dropout_in_add_norm(case: Case) -> None:
    torch.manual_seed(1)
    layers, given = Layers(), torch.randn(2, 5, 11, D_MODEL)

    def equation(by: Arithmetic, layers: Layers, x: Tensor, y: Tensor) -> Tensor:
        return seeded(1, by.add_norm, x, y, layers.norm, DROPOUT)

    x, y = given.to(case.dtype)
    out = equation(case.by(), deepcopy(layers).to(case.dtype), x, y.requires_grad_())
    kept = torch.autograd.grad(out, y, torch.randn_like(out))[0] != 0  # all others were dropped
    assert_fair(kept)

    def exactly(_: Any, layers: Layers, x: Tensor, y: Tensor) -> Tensor:
        return layers.norm(x + y * kept / (1 - DROPOUT))

    hold(case, equation, *given, layers=layers, exactly=exactly)
