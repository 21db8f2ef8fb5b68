"""The cooldown of a run: when it begins, and by how much it lowers the learning rate.

If a run has no time limit (`training.minutes`), the recipe alone decides. With a time limit, the
cooldown is planned just before the cooldown's first step, and later checkpoints keep the plan.
A run that is continued from such a checkpoint has the same learning rates as a run that was never
stopped.
"""

from regard.recipe import TrainingRecipe
from regard.run.state import TrainingState
from regard.schedule import cooldown


class Cooldown:
    """Plans a run's cooldown (`training.cooldown`), and computes factors of the learning rate."""

    def __init__(self, recipe: TrainingRecipe, span: tuple[int, int] | None = None):
        """If the recipe has no cooldown, `span` may give one, as the method `span` returns it."""
        self._recipe, self._span = recipe, span
        self._for = recipe.minutes, recipe.steps, recipe.cooldown

    def factor(self, state: TrainingState) -> float:
        """The factor by which the learning rate of the next step is multiplied."""
        span = self.span(state)
        return cooldown(state.step + 1, *span) if span else 1.0

    def span(self, state: TrainingState) -> tuple[int, int] | None:
        """The last step before the cooldown, and the cooldown's last step.

        Returns None if there is no cooldown, or if it is not planned yet.
        """
        recipe = self._recipe
        if self.is_planned(state):
            return state.cooldown_begins, state.cooldown_ends
        if recipe.cooldown and not recipe.minutes:
            return round((1 - recipe.cooldown) * recipe.steps), recipe.steps
        return self._span

    def is_planned(self, state: TrainingState) -> bool:
        """Whether `state` has a plan for this recipe, and is not beyond the plan's last step."""
        return self._is_own(state) and 0 < state.step <= state.cooldown_ends

    def _is_own(self, state: TrainingState) -> bool:
        """Whether the plan in `state` was made for this recipe's minutes, steps and cooldown."""
        planned_for = state.cooldown_minutes, state.cooldown_steps, state.cooldown_part
        return planned_for == self._for

    def explains(self, first: TrainingState, last: TrainingState) -> bool:
        """Whether the `span` of the state `last` holds for all steps since the state `first`.

        Both states are of the same run. The span does not hold if a plan that was made for another
        time, number of steps or `training.cooldown` may have lowered learning rates of these steps.
        """
        return all(self._is_own(s) or s.cooldown_ends <= first.step for s in (first, last))

    def is_over(self, state: TrainingState) -> bool:
        """Whether the last step of the planned cooldown has been made."""
        return self.is_planned(state) and state.step >= state.cooldown_ends

    def steps(self, state: TrainingState, left: float, step_time: float) -> int:
        """The number of steps of a cooldown that must begin after the next step; 0 if none must.

        The run has `left` seconds for further steps, each of which takes about `step_time` seconds.
        A `step_time` of 0 means that this time is not known; then only `training.steps` limits the
        number of further steps.
        """
        recipe, step = self._recipe, state.step + 1
        if not recipe.cooldown or not recipe.minutes or self.is_planned(state):
            return 0
        steps = recipe.steps - step
        if step_time:
            steps = max(0, min(steps, int(left / step_time)))
        return steps if steps <= recipe.cooldown * (step + steps) else 0

    def plan(self, state: TrainingState, steps: int) -> None:
        """Plan in `state` a cooldown of the next `steps` steps."""
        state.cooldown_minutes, state.cooldown_steps, state.cooldown_part = self._for
        state.cooldown_begins, state.cooldown_ends = state.step, state.step + steps
