"""The training step of `regard train`. Arguments: folder, and fp32, bf16, int8 or auto."""

import sys

from torch import Tensor, nn
from training_batches import RATE, Batch, Shape, Step, train_in_turn

import regard
from regard.arithmetic.choose import choose_dtype
from regard.data.batches import Batch as RegardBatch
from regard.data.rows import Rows
from regard.machine.devices import choose_device
from regard.machine.processes import ALONE
from regard.recipe import Recipe
from regard.run.sharding import model_and_optimizer
from regard.steps import steps_for
from regard.training import update

PRECISION = sys.argv[2]
DEVICE = choose_device()
DTYPE = choose_dtype(PRECISION, DEVICE)


def prepare(shape: Shape) -> tuple[nn.Module, Step]:
    fields = shape._asdict()
    vocabulary = fields.pop("vocabulary")
    recipe = Recipe().but(**fields, precision=PRECISION)
    model, optimizer = model_and_optimizer(recipe, vocabulary, DTYPE, DEVICE, ALONE, shard=False)
    steps = steps_for(model, optimizer, recipe, DEVICE, DTYPE, print)

    def step(batch: Batch) -> Tensor:
        loss = update(steps, optimizer, [as_ours(batch)], RATE)
        return loss.smoothed / loss.target_tokens

    return model, step


def as_ours(batch: Batch) -> RegardBatch:
    return RegardBatch(
        Rows(batch.source, batch.source_segments, batch.source_positions),
        Rows(batch.target, batch.target_segments, batch.target_positions),
        batch.labels,
        int((batch.source != 0).sum()),
        int((batch.labels != 0).sum()),
    )


if __name__ == "__main__":
    computed_in = "int8" if PRECISION == "int8" else str(DTYPE)
    train_in_turn(computed_in, {"regard": regard.__version__}, prepare)
