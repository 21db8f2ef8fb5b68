"""Steps that overwrite what they are made from, as a recording replays them; and what cannot.

Recording itself is a GPU's: here a twin makes the step instead of replaying it.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from regard.arithmetic.cuda import STEPS_UNSEEN, Cuda
from regard.arithmetic.graphs import WORTH_RECORDING, RecordedSteps, overwrite
from regard.arithmetic.plain import PLAIN
from regard.decoding import Decoding
from regard.granules import ONE_STEP
from regard.machine.streams import Streams
from regard.recipe import SearchRecipe
from regard.search import Rules, search
from regard.text.tokenizer import EOS
from test_granules import MODELS, SENTENCES, assert_near, drawn, in_granules, sources

RECIPE = SearchRecipe(beam=4)
REPLAYS = {"paper", "neighbourhood", "learned positions"}


class Twin(RecordedSteps):
    """Replays a step by making it."""

    def __init__(self, failures: int = 0):
        super().__init__(STEPS_UNSEEN)
        self.failures, self.asked, self.replayed, self.recording = failures, 0, 0, False

    def can_record(self, value: Any) -> bool:
        return True

    def record(self, step: Callable[[Any], Any], value: Any) -> Callable[[], None]:
        """A function that makes the step, which is made already when the function is returned."""
        self.asked += 1
        if self.asked <= self.failures:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.recording = True
        overwrite(step, value)
        self.recording, made = False, True

        def replay() -> None:
            nonlocal made
            self.replayed += 1
            if not made:
                overwrite(step, value)
            made = False

        return replay


@pytest.mark.parametrize("kind", MODELS)
def test_steps_that_overwrite_find_what_others_find(kind: str) -> None:
    """All that keeps its shapes is replayed; the rest makes its steps as before."""
    model, arithmetic, twin = MODELS[kind](), Cuda(learning=False), Twin()
    for member in getattr(model, "model", model).members:
        member.double().compute_by(arithmetic)  # in fp32, hypotheses may be equally likely
    source = sources(6)
    limits = (source.segments != 0).sum(1) + 60
    right, found = (
        search(model, source, limits, RECIPE, by=in_granules(granule), n_best=4)
        for granule in (ONE_STEP, twin)
    )
    assert_near(found, right)
    assert (twin.replayed > STEPS_UNSEEN) == (kind in REPLAYS)
    assert twin.asked == (3 if kind in REPLAYS else 1)  # granules, or the first one only


@pytest.mark.parametrize("length", [1, WORTH_RECORDING - 1, WORTH_RECORDING, 33, 80])
def test_results_of_many_random_searches_are_equal(length: int) -> None:
    twin = Twin()
    for seed in range(10):
        toy, limits = drawn(9, 0.3, True, seed), (torch.arange(1, 9) * length + 7) // 8
        right, found = (
            search(toy, SENTENCES, limits, RECIPE, by=in_granules(granule), n_best=3)
            for granule in (ONE_STEP, twin)
        )
        assert found == right
    assert (twin.replayed > 0) == (length >= WORTH_RECORDING)


def test_recording_that_fails_is_tried_again_after_a_first_step_and_then_no_more() -> None:
    """Until one has succeeded, a step is made before it."""
    toy, limits = drawn(9, 0.0, False, 1), torch.full((8,), 60)
    right = search(toy, SENTENCES, limits, RECIPE, by=PLAIN)
    for failures in (1, 60):
        twin = Twin(failures)
        for _ in range(2):
            assert search(toy, SENTENCES, limits, RECIPE, by=in_granules(twin)) == right
        assert (twin.asked, twin.replayed) == (1, 0)


def test_the_first_step_of_another_beam_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In it, kernels are compiled for the beam, which CUDA may refuse while it records."""
    toy, limits, twin = drawn(9, 0.0, False, 1), torch.full((8,), 60), Twin()
    step, first = Rules.unseen_step, dict[int, bool]()

    def noted(rules: Rules, beams: Any) -> Any:
        first.setdefault(rules.recipe.beam, twin.recording)
        return step(rules, beams)

    monkeypatch.setattr(Rules, "unseen_step", noted)
    for beam in (4, 8, 4, 6):
        search(toy, SENTENCES, limits, SearchRecipe(beam=beam), by=in_granules(twin))
    assert first == {4: False, 8: False, 6: False}
    assert twin.replayed > 0


def test_tables_of_positions_are_made_before_a_step_is_recorded() -> None:
    """A recording in which a longer table is copied to the GPU would fail."""
    model, twin = MODELS["paper"](), Twin()
    model.compute_by(in_granules(twin, Cuda(learning=False)))
    with torch.no_grad():
        model.output_bias[EOS] = -50.0  # no hypothesis ends by itself
    recipe = SearchRecipe(beam=1, max_extra=560)
    tables = set[int]()

    def found(rows: Any, limits: Tensor, _: list[int]) -> Any:
        tables.add(id(model.embedding.positions))
        best = search(model, rows, limits, recipe, by=model.by)
        tables.add(id(model.embedding.positions))
        return best

    Decoding(model, recipe, exact=False).hypotheses([[5, 7, EOS]], found, here=True)
    assert twin.replayed > 500
    assert len(tables) == 1


def test_memory_that_runs_out_while_a_step_is_recorded_is_no_failure_of_recording() -> None:
    class Full(Twin):
        def record(self, step: Callable[[Any], Any], value: Any) -> Callable[[], None]:
            raise torch.OutOfMemoryError("CUDA out of memory")

    toy, limits = drawn(9, 0.0, False, 1), torch.full((8,), 60)
    with pytest.raises(torch.OutOfMemoryError):
        search(toy, SENTENCES, limits, RECIPE, by=in_granules(Full()))


def test_each_thread_has_recordings_of_its_own() -> None:
    """Streams compute at the same time, so that no thread may overwrite another's recording."""
    toy, limits, twin = drawn(9, 0.0, False, 1), torch.full((8,), 60), Twin()
    right = search(toy, SENTENCES, limits, RECIPE, by=PLAIN)

    def found(i: int) -> tuple[Any, int]:
        return search(toy, SENTENCES, limits, RECIPE, by=in_granules(twin)), twin.asked

    (first, asked), (second, asked_twice) = Streams(torch.device("cpu"), 1).map(found, range(2))
    assert first == second == right
    assert asked_twice == 2 * asked > 0
    assert (twin.asked, twin.replayed) == (0, 0)


def test_on_a_cpu_nothing_is_recorded() -> None:
    toy, limits = drawn(9, 0.0, False, 1), torch.full((8,), 60)
    right = search(toy, SENTENCES, limits, RECIPE, by=PLAIN)
    graphs = Cuda(learning=False).granule
    assert isinstance(graphs, RecordedSteps)
    assert search(toy, SENTENCES, limits, RECIPE, by=in_granules(graphs)) == right


class Graph:
    """Stands for a CUDA graph. As in PyTorch, a pool is refused once all its graphs are gone."""

    used: ClassVar[Counter[int]] = Counter()
    ended: ClassVar[set[int]] = set()

    def capture_begin(self, pool: int, capture_error_mode: str) -> None:
        assert pool not in self.ended
        self.pool = pool
        self.used[pool] += 1

    def capture_end(self) -> None:
        pass

    def replay(self) -> None:
        pass

    def __del__(self) -> None:
        self.used[self.pool] -= 1
        if not self.used[self.pool]:
            self.ended.add(self.pool)


def test_after_a_first_recording_that_failed_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = itertools.count()
    monkeypatch.setattr("torch.cuda.Stream", lambda priority: priority)
    monkeypatch.setattr("torch.cuda.stream", lambda _: nullcontext())
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: next(pools))
    monkeypatch.setattr("torch.cuda.CUDAGraph", Graph)
    steps, value = RecordedSteps(STEPS_UNSEEN), Held(torch.zeros(1), torch.zeros(1))

    def refused(_: Held, problem: type[Exception] = torch.OutOfMemoryError) -> Held:
        raise problem("no")

    for _ in range(2):
        with pytest.raises(torch.OutOfMemoryError):
            steps.record(refused, value)
    for _ in range(2):
        steps.record(lambda held: Held(held.pair[0] + 1, held.pair[1]), value)
    for problem in (ValueError, torch.OutOfMemoryError):
        with pytest.raises(problem):
            steps.record(partial(refused, problem=problem), value)
        steps.record(lambda held: Held(held.pair[0] + 1, held.pair[1]), value)
    assert value.pair[0].item() == 4.0
    # One for each of the first two, one for the next recordings, although a step is refused between
    # them, and one after PyTorch has failed again.
    assert next(pools) == 4


class Held:
    """An object that holds tensors and a number."""

    def __init__(self, x: Tensor, y: Tensor, number: int = 0):
        self.pair, self.number = (x, y), number


def test_what_a_step_makes_is_written_over_its_value() -> None:
    x, y = torch.tensor([1.0]), torch.tensor([2.0])
    value = Held(x, y)
    overwrite(lambda held: Held(held.pair[1], held.pair[0] + 10), value)  # an exchange, too
    assert value.pair[0] is x
    assert (x.item(), y.item()) == (2.0, 11.0)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (lambda held: Held(*held.pair, number=1), "a number"),
        (lambda held: Held(held.pair[0], torch.zeros(2)), "the shape"),
        (lambda held: Held(held.pair[0] + 1, held.pair[1].long()), "the shape"),
    ],
)
def test_what_cannot_be_overwritten_is_refused(step: Callable[[Any], Any], problem: str) -> None:
    x, y = torch.tensor([1.0]), torch.tensor([2.0])
    with pytest.raises(ValueError, match=problem):
        overwrite(step, Held(x, y))
    with pytest.raises(ValueError, match="share memory"):
        overwrite(lambda held: Held(held.pair[0] + 1, held.pair[1] + 2), Held(x, x.view(1)))
    assert (x.item(), y.item()) == (1.0, 2.0)
