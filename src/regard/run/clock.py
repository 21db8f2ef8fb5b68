"""The clock of a run: it measures time and speed, and decides what is due after each step."""

import math
import time

from regard.machine.interrupt import SIGNALS, Interrupt
from regard.run.cooldown import Cooldown
from regard.run.journal import Journal
from regard.run.setup import Setup
from regard.run.state import Due, Training, TrainingState
from regard.schedule import cooldown

CLOSING, TUNING = 0.01, 0.03
"""Fractions of `training.minutes` that are reserved: at least `CLOSING` for the work after the last
step, and `TUNING` for tuning, if the recipe's `tune` is set."""
LONGEST_CLOSING, LONGEST_TUNING = 1800.0, 3600.0
"""The most seconds that the fractions reserve. If the work after the last step is estimated to take
longer, more is reserved for this work."""
ENOUGH = 10
"""The time of a step counts as known when a command has made this many steps after its first."""


def tuning_seconds(minutes: float) -> float:
    """The seconds that are reserved for tuning in a run of `minutes` minutes."""
    return min(60 * minutes * TUNING, LONGEST_TUNING)


class Clock:
    """Counts time and tokens; decides what is due, from the step, the time and the signals."""

    def __init__(
        self,
        setup: Setup,
        journal: Journal,
        interrupt: Interrupt,
        began: float | None,
        cooldown: tuple[int, int] | None,
    ):
        """Count time from `began`, a value of `time.monotonic`; None means from now.

        `cooldown` is the argument `span` of `Cooldown`.
        """
        self._recipe, self._processes = setup.recipe.training, setup.processes
        self._journal, self.interrupt = journal, interrupt
        self.cooldown = Cooldown(self._recipe, cooldown)
        self._counted_at = time.monotonic() if began is None else began
        self._closing, self._due_at = 0.0, float("inf")
        self.start(TrainingState())

    def start(self, state: TrainingState) -> None:
        """Count new tokens from this state, and minutes to the next save from now; set `over`."""
        self._saved_at = self._due_saved_at = self._logged_at = time.monotonic()
        self._logged_tokens = state.source_tokens + state.target_tokens
        self._first: tuple[int, float] | None = None
        self.over = self._recipe.minutes > 0 and state.ended == self._recipe.minutes
        """Whether the time of the run, `training.minutes`, or its planned cooldown is over."""

    def tick(self, state: TrainingState, source_tokens: int, target_tokens: int) -> None:
        """Add to the state one step, its tokens, and the time since the last `count_time`."""
        state.step += 1
        state.source_tokens += source_tokens
        state.target_tokens += target_tokens
        self.count_time(state)
        self._first = self._first or (state.step, state.seconds)

    def count_time(self, state: TrainingState) -> None:
        """Add to `state.seconds` the time since the last call or, at first, since `began`."""
        now = time.monotonic()
        state.seconds += now - self._counted_at
        self._counted_at = now

    def wishes(self, state: TrainingState) -> list[int]:
        """Return what this process wants done after this step, which `state` does not count yet.

        The first three numbers are flags, 0 or 1. They ask to save a checkpoint for averaging, to
        save one for resuming, and to end the run because its time is over. The fourth number asks
        for a cooldown of this many steps; 0 asks for none. In all processes but the first, the four
        numbers are 0. One flag follows for each signal of `SIGNALS`. The caller adds up the numbers
        of all processes for `due`.
        """
        recipe, first, now = self._recipe, self._processes.first, time.monotonic()
        by_clock = first and 0 < recipe.save_minutes <= (now - self._due_saved_at) / 60
        resume = first and 0 < recipe.resume_minutes <= (now - self._saved_at) / 60
        seconds = state.seconds + now - self._counted_at
        left = self._left(seconds)
        cooled = self.cooldown.steps(state, left, self._step_time(state, seconds)) if first else 0
        signals = [self.interrupt.signum == signum for signum in SIGNALS]
        return [by_clock, resume, first and left <= 0, cooled, *signals]

    def due(self, state: TrainingState, wishes: list[int]) -> Due:
        """Decide what is due after this step.

        `wishes` holds the numbers that the method `wishes` returned, summed over all processes, so
        that all processes decide alike. If these sums ask for a cooldown, it is planned in `state`.
        The step is the last one if its number is `training.steps`, if no time is left for further
        steps, or if the planned cooldown is over. If no time is left, or if the cooldown is over
        before `training.steps`, `over` and `state.ended` are set. After the last step, logging and
        a validation are due, and so is a checkpoint, which may serve only to resume the run.
        `training.patience` does not count here. A signal that came to any process is recorded in
        `interrupt`.
        """
        recipe, step = self._recipe, state.step
        self._due_at = time.monotonic()
        save_now, resume, is_late, cooled, *signals = wishes
        if any(signals):
            self.interrupt.signum = SIGNALS[signals.index(max(signals))]
        self._end_in_time(state, is_late > 0, cooled)
        last = self.over or step == recipe.steps
        by_steps = recipe.save_every > 0 and step % recipe.save_every == 0
        return Due(
            log=last or step == 1 or step % recipe.log_every == 0,
            validate=last or step % recipe.validate_every == 0,
            save=by_steps or save_now > 0 or (last and recipe.averages_last),
            resume=resume > 0 or last,
            leave=any(signals),
        )

    def _step_time(self, state: TrainingState, seconds: float) -> float:
        """The mean time in seconds of the steps since this command's first step; 0 if not known.

        The time of validations and saves between these steps is included. `state` does not yet
        count the newest step. The run has taken `seconds` so far. The first step is left out,
        because it also loads code. Steps of earlier commands are left out, because they may have
        been slower or faster.
        """
        if self._first is None or (steps := state.step + 1 - self._first[0]) < ENOUGH:
            return 0.0
        return (seconds - self._first[1]) / steps

    def _end_in_time(self, state: TrainingState, late: bool, cooled: int) -> None:
        """Plan a cooldown of `cooled` steps, if any; end a run that is late or has cooled down."""
        if cooled:
            self.cooldown.plan(state, cooled)
        span = self.cooldown.span(state)
        if span and state.step == span[0]:
            self._journal.write("cooldown", step=state.step, ends=span[1])
        if late or (self.cooldown.is_over(state) and state.step < self._recipe.steps):
            self.over, state.ended = True, self._recipe.minutes
            if span:
                factor, left = cooldown(state.step + 1, *span), self._left(state.seconds)
                self._journal.write("over", step=state.step, factor=round(factor, 4), left=left)

    def _left(self, seconds: float) -> float:
        """The seconds until the work at the end must start; the run has taken `seconds`.

        The work at the end is to validate, save, average and tune. Returns infinity if the run's
        time is not limited.
        """
        budget = 60 * self._recipe.minutes
        if not budget:
            return math.inf
        closing = max(self._closing, min(CLOSING * budget, LONGEST_CLOSING))
        tuning = tuning_seconds(self._recipe.minutes) if self._recipe.tune else 0.0
        return budget - closing - tuning - seconds

    def saved(self, *, extra: bool) -> None:
        """Count the minutes to the next save from now on.

        An `extra` save, which serves only to continue from, does not delay the next regular save.
        Also estimate how long the work at the end of the run takes. For each save, the time from
        the last call of `due` to the end of the save is measured; it includes a validation, if one
        was due. The estimate is 1.5 times the longest of these times. The factor 1.5 leaves time to
        average the checkpoints.
        """
        self._saved_at = time.monotonic()
        if not extra:
            self._due_saved_at = self._saved_at
        self._closing = max(self._closing, 1.5 * (self._saved_at - self._due_at))

    def log(self, training: Training, rate: float, smoothed: float, plain: float) -> None:
        """Write a step into the journal, with the learning rate and the losses per token.

        The loss `smoothed` is computed with label smoothing, `plain` without it. The written speed
        is the mean since the last logged step, in source and target tokens per second.
        """
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
