"""Counted operations are those that torch counts; the estimate is that of Table 2."""

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from regard.cost import Cost, flop, flop_of_tokens
from regard.data.rows import one_per_row
from regard.loss import smoothed_loss
from regard.paper import BASE_TIME, BIG_TIME, SUSTAINED_FLOPS, TrainingTime
from regard.recipe import ModelRecipe
from regard.transformer import Transformer

WIDER = ModelRecipe(layers=2, d_model=64, d_ff=128, heads=4)
VOCABULARY = 269


@pytest.mark.parametrize(
    "fields",
    [
        {"d_k": 8, "d_v": 24},
        {"decoder_heads": 2, "decoder_d_ff": 48, "decoder_layers": 1, "d_k": 8, "norm": "pre"},
        {"embeddings": "apart", "activation": "gelu"},
        {"neighbourhood": 8},
        {"neighbourhood": 8, "causal": False},
    ],
    ids=str,
)
def test_operations_are_those_that_torch_counts(fields: dict[str, object]) -> None:
    recipe = WIDER.model_copy(update=fields)
    model = Transformer(recipe, VOCABULARY)
    sentences, source, target = 5, 32, 16  # lengths that a CPU does not pad
    batch = [[3] * source] * sentences, [[4] * target] * sentences
    with FlopCounterMode(display=False) as counter:
        logits = model(one_per_row(batch[0]), one_per_row(batch[1])).flatten(0, 1)
        smoothed_loss(logits, torch.full((len(logits),), 5), 0.1)[0].backward()
    counted = flop(recipe, VOCABULARY, [source] * sentences, [target] * sentences)
    assert counter.get_total_flops() == sum(counted)


def test_a_run_counts_the_epochs_that_it_has_done() -> None:
    sources, targets = np.array([3, 11, 7], np.int32), np.array([5, 2, 13], np.int32)
    epoch = sum(flop(WIDER, VOCABULARY, sources, targets))
    for epochs in (0, 1, 3):
        tokens = epochs * 21, epochs * 20
        counted = flop_of_tokens(WIDER, VOCABULARY, sources, targets, *tokens)
        assert counted == pytest.approx(epochs * epoch)


@pytest.mark.parametrize("time", [BASE_TIME, BIG_TIME])
def test_the_estimate_is_that_of_table_2(time: TrainingTime) -> None:
    cost = Cost(
        counted_flop=1.0,
        seconds=3600 * time.hours,
        devices=time.gpus,
        single_precision_flop_per_second=SUSTAINED_FLOPS[time.gpu],
    )
    assert cost.estimated_flop == pytest.approx(time.flops)
    record = cost.record()
    assert record["estimated_flop"] == cost.estimated_flop
    assert record["counted_flop"] == 1.0
