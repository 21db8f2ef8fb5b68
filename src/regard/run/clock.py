"""The clock of a run: the time it has taken, its speed, and what is due after each step."""

import time

from regard.machine.interrupt import SIGNALS, Interrupt
from regard.run.journal import Journal
from regard.run.setup import Setup
from regard.run.state import Due, Training, TrainingState


class Clock:
    """Counts time and tokens, and decides by step, minutes and signals what is due."""

    def __init__(self, setup: Setup, journal: Journal, interrupt: Interrupt):
        self._recipe, self._processes = setup.recipe.training, setup.processes
        self._journal, self.interrupt = journal, interrupt
        self.start(TrainingState())

    def start(self, state: TrainingState) -> None:
        """Begin to count at this moment, from this state."""
        self._saved_at = self._logged_at = self._counted_at = time.monotonic()
        self._logged_tokens = state.source_tokens + state.target_tokens

    def tick(self, state: TrainingState, source_tokens: int, target_tokens: int) -> None:
        """Count a step, the tokens that it learned from, and its time."""
        state.step += 1
        state.source_tokens += source_tokens
        state.target_tokens += target_tokens
        self.count_time(state)

    def count_time(self, state: TrainingState) -> None:
        """Add the time since the last call to the state."""
        now = time.monotonic()
        state.seconds += now - self._counted_at
        self._counted_at = now

    def due(self, state: TrainingState) -> Due:
        """Decide what to do after this step; after the last one, log, validate and save.

        All processes decide alike: the first one's clock counts, and a signal to any of them.
        """
        recipe, step = self._recipe, state.step
        minutes = (time.monotonic() - self._saved_at) / 60
        by_clock = self._processes.first and 0 < recipe.save_minutes <= minutes
        mine = [self.interrupt.signum == signum for signum in SIGNALS]
        save_now, *signals = self._processes.sum(by_clock, *mine)
        if any(signals):
            self.interrupt.signum = SIGNALS[signals.index(max(signals))]
        last = step == recipe.steps
        return Due(
            log=last or step == 1 or step % recipe.log_every == 0,
            validate=last or step % recipe.validate_every == 0,
            save=last or (recipe.save_every > 0 and step % recipe.save_every == 0) or save_now > 0,
            leave=any(signals),
        )

    def saved(self) -> None:
        """Begin anew to count the minutes to the next save."""
        self._saved_at = time.monotonic()

    def log(self, training: Training, rate: float, smoothed: float, plain: float) -> None:
        """Write a step into the journal, with the losses per token and the speed since the last."""
        state, now = training.state, time.monotonic()
        tokens = state.source_tokens + state.target_tokens
        speed = (tokens - self._logged_tokens) / max(now - self._logged_at, 1e-9)
        self._journal.write(
            "step",
            step=state.step,
            epoch=round(training.batches.epoch, 3),
            loss=smoothed,
            plain_loss=plain,
            rate=rate,
            source_tokens=state.source_tokens,
            target_tokens=state.target_tokens,
            tokens_per_second=round(speed, 1),
            seconds=round(state.seconds, 3),
        )
        self._logged_at, self._logged_tokens = now, tokens
