"""Where a run stands, and what is to be done after a step."""

from dataclasses import dataclass
from typing import NamedTuple

from regard.data.batches import Batches
from regard.data.prefetch import Prefetched
from regard.run.sharding import Optimizer, ShardedAdam
from regard.transformer import Transformer


@dataclass
class State:
    """Where training stands; what a checkpoint keeps beside tensors."""

    step: int = 0
    """Optimizer steps done."""
    source_tokens: int = 0
    target_tokens: int = 0
    """Tokens learned from so far, </s> included, padding not."""
    seconds: float = 0.0
    """Time spent training, validation and saving included, over all starts of the run."""
    cuts: int = 1
    """Parts that each batch is cut into at least, so that one fits the memory."""
    lowest_loss: float = 0.0
    """Of a validation; 0 before the first."""
    no_better: int = 0
    """Validations since that one."""

    def judge(self, loss: float) -> None:
        """Take notice of a validation's loss."""
        if loss < self.lowest_loss or not self.lowest_loss:
            self.lowest_loss, self.no_better = loss, 0
        else:
            self.no_better += 1


class Due(NamedTuple):
    """What is to be done after a step, decided once: what happens meanwhile is for the next."""

    log: bool
    validate: bool
    save: bool
    leave: bool
    """A signal has come: save though it may not be due, and raise Interrupted."""


class Training(NamedTuple):
    """What the loop works on."""

    model: Transformer
    optimizer: Optimizer
    batches: Batches | Prefetched
    state: State

    def whole_model(self) -> Transformer:
        """The model with all its weights in this process; of several, all ask for it."""
        if isinstance(self.optimizer, ShardedAdam):
            return self.optimizer.whole_model()
        return self.model
