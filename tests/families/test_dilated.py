"""The dilated family: dynamic unfolding, and how far its blocks see."""

import pytest
import torch

from families.modelling import model_of, rows
from regard.data.rows import one_per_row
from regard.families.dilated import DILATIONS, DilatedModel, unfolded


def test_unfolded_lengths() -> None:
    assert [unfolded(n) for n in (0, 1, 4, 5, 6, 10)] == [0, 2, 5, 6, 8, 12]


def test_the_encoder_writes_as_many_positions_for_each_sentence() -> None:
    model = model_of("dilated")
    memory = model.encode(rows([10, 3, 5], 1))
    written = [int(row.any(-1).nonzero()[:, 0].max()) + 1 for row in memory]
    assert memory.shape[1] == 12
    assert written == [12, 4, 6]


def test_the_decoder_reads_the_encoder_at_its_own_position_and_before() -> None:
    model, target = model_of("dilated"), rows([6], 2)
    source = rows([5], 1)
    memory = model.encode(source)
    other = memory.index_fill(1, torch.tensor([3]), 1.0)
    one, two = (model.decode(target, m, source) for m in (memory, other))
    changed = (one != two).any(-1)[0]
    assert changed.tolist() == [False, False, False, True, True, True]


@pytest.mark.parametrize("layers", [5, 7])
def test_how_far_the_decoder_sees(layers: int) -> None:
    model = model_of("dilated", decoder_layers=layers, kernel=3)
    reach = sum(2 * DILATIONS[i % 5] for i in range(layers))
    assert [block.convolution.reach for block in model.decoder] == [
        2 * DILATIONS[i % 5] for i in range(layers)
    ]
    length = reach + 3
    ids = [1] + [5] * (length - 1)
    source = rows([2], 1)
    one, two = (
        model.decode(one_per_row([some]), model.encode(source), source)
        for some in (ids, [9, *ids[1:]])
    )
    changed = (one != two).any(-1)[0].nonzero()[:, 0]
    assert int(changed.max()) == reach


def test_a_target_longer_than_the_source_goes_on_without_it() -> None:
    model = model_of("dilated")
    assert isinstance(model, DilatedModel)
    source, target = rows([2], 1), rows([20], 2)
    assert model(source, target).isfinite().all()
