"""§6.1: "we used a single model obtained by averaging the last 5 checkpoints"."""

from collections.abc import Sequence

from torch import Tensor

from regard.errors import ModelError
from regard.run.checkpoints import Checkpoint


def average(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of each weight, one checkpoint in memory at a time, summed in fp64.

    Raises ModelError where there is none, or where two do not belong together.
    """
    if not checkpoints:
        raise ModelError("no whole checkpoint to average")
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        weights = checkpoint.weights()
        if total and {k: t.shape for k, t in weights.items()} != {
            k: t.shape for k, t in total.items()
        }:
            raise ModelError(f"{checkpoint.path}: its weights differ in shape from the others'")
        for name, tensor in weights.items():
            total[name] = tensor.double() + total[name] if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}
