"""Every arithmetic computes whole models as `Plain` does in fp64: the paper's, and with fields."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from arithmetic.cases import D_K, D_V, HEADS, VOCABULARY, Case, every_case, skip_without
from arithmetic.holding import assert_near
from regard.data.batches import Batch
from regard.data.rows import one_per_row
from regard.recipe import Recipe
from regard.steps import batch_loss
from regard.transformer import Transformer

FIELDS: Mapping[str, dict[str, Any]] = {
    "paper": {},
    "pre": {"norm": "pre", "activation": "swish", "embeddings": "apart", "positions": "halves",
            "output_bias": True},
    "post": {"activation": "gelu", "embeddings": "target", "embedding_scale": False,
             "decoder_heads": 3, "decoder_d_ff": 7, "output_bias": True, "norm_epsilon": 1e-3},
}  # fmt: skip


@pytest.fixture(scope="module", params=every_case(), ids=str)
def case(request: pytest.FixtureRequest) -> Case:
    skip_without(*request.param.needs)
    return request.param


@pytest.fixture(params=FIELDS)
def fields(request: pytest.FixtureRequest) -> str:
    return request.param


@cache
def small_model(fields: str, dtype: torch.dtype) -> Transformer:
    torch.manual_seed(1)
    sizes = {"layers": 1, "d_model": 12, "heads": HEADS, "d_k": D_K, "d_v": D_V, "d_ff": 13}
    recipe = Recipe().but(**sizes, **FIELDS[fields]).model
    source = VOCABULARY if recipe.embeddings == "shared" else VOCABULARY + 2
    model = Transformer(recipe, VOCABULARY, source).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    if model.output_bias is not None:
        model.output_bias.data[0] = -1e30  # as symbols have that a model does not know
    return model.to(dtype)


@torch.inference_mode()
def decoded(model: Transformer) -> list[Tensor]:
    """Logits of each step, until slots were dropped and a sentence has left."""
    draw = torch.Generator().manual_seed(1)
    state = model.start(one_per_row([[3, 4, 5, 6, 2], [7, 2], [8, 9, 2]]))
    rows, logits = torch.arange(3).unsqueeze(1), []
    for step in range(19):
        tokens = torch.randint(3, VOCABULARY, (rows.numel(),), generator=draw)
        found, state = model.step(tokens, state.select(rows))
        logits.append(found[:, 1:])
        sentences = torch.tensor([0, 2] if step == 16 else range(len(rows))).unsqueeze(1)
        parents = torch.randint(0, rows.shape[1], (len(sentences), 4), generator=draw)
        rows = sentences * rows.shape[1] + parents
    return logits


@cache
def decoded_exactly(fields: str, dtype: torch.dtype) -> list[Tensor]:
    return decoded(deepcopy(small_model(fields, dtype)).double())


def test_decoding_with_a_cache(case: Case, fields: str) -> None:
    model = deepcopy(small_model(fields, case.dtype))
    model.compute_by(case.make(model, model.output_matrix))
    for found, right in zip(decoded(model), decoded_exactly(fields, case.dtype), strict=True):
        assert_near(found, right, 2 * case.near)


def batch() -> Batch:
    sources, targets = [[3, 4, 5, 6, 2], [7, 22, 2], [8, 2]], [[5, 4, 3, 2], [9, 2], [17, 21, 8, 2]]
    source, target = one_per_row(sources), one_per_row([[1, *ids[:-1]] for ids in targets])
    return Batch(source, target, one_per_row(targets).ids, source.tokens, target.tokens)


LOSSES = {"one pass": batch_loss, "two passes": partial(batch_loss, consistency=1.5)}


def learned(model: Transformer, loss: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Both losses of a batch, and the gradient of the smoothed one."""
    smoothed, plain = loss(model, batch(), 0.1)
    smoothed.backward()
    gradients = [p.grad.flatten() for p in model.parameters() if p.grad is not None]
    return smoothed.detach(), plain, torch.cat(gradients)


@cache
def learned_exactly(fields: str, dtype: torch.dtype, loss: str) -> tuple[Tensor, Tensor, Tensor]:
    return learned(deepcopy(small_model(fields, dtype)).double(), LOSSES[loss])


@pytest.mark.parametrize("loss", LOSSES)
def test_learning_from_a_batch(case: Case, fields: str, loss: str) -> None:
    if not case.learns:
        return
    model = deepcopy(small_model(fields, case.dtype))
    model.compute_by(case.make(model, model.output_matrix))
    right = learned_exactly(fields, case.dtype, loss)
    for found, exact in zip(learned(model, LOSSES[loss]), right, strict=True):
        assert_near(found, exact, 3 * case.near)
