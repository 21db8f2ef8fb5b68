"""The training step of `regard train`. Arguments: folder, and fp32, bf16, int8 or auto."""

import sys

from torch import Tensor, nn
from training_batches import RATE, Batch, Shape, Step, train_in_turn

import regard
from regard.data.batches import Batch as RegardBatch
from regard.data.rows import Rows
from regard.machine.devices import choose_device, choose_dtype, keep_freed_memory
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.training import losses_on, update
from regard.transformer import Transformer

PRECISION = sys.argv[2]
DTYPE = choose_dtype(PRECISION, choose_device())


def prepare(shape: Shape) -> tuple[nn.Module, Step]:
    keep_freed_memory()
    fields = shape._asdict()
    vocabulary = fields.pop("vocabulary")
    recipe = Recipe().but(**fields, precision=PRECISION)
    model = Transformer(recipe.model, vocabulary).train()
    optimizer = FlatAdam(model, recipe.training, DTYPE)
    losses = losses_on(choose_device(), model, recipe, print)

    def step(batch: Batch) -> Tensor:
        loss = update(model, optimizer, [as_ours(batch)], RATE, shape.label_smoothing, losses)
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
