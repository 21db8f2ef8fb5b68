"""Tasks of gpu.py that measure speed: the device, training steps, attention, decoding."""

import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.arithmetic.choose import for_compiled_step, for_decoding, for_training, for_update
from regard.cost import flop
from regard.data.batches import Batch, Batches
from regard.data.prefetch import Prefetched
from regard.data.rows import Rows
from regard.decoding import Decoding
from regard.hypotheses import Hypothesis
from regard.machine.streams import Streams
from regard.optimizer import FlatAdam
from regard.paper import BASE, BIG
from regard.recipe import Recipe
from regard.search import search
from regard.steps import Compiled, Whole
from regard.text.tokenizer import EOS
from regard.training import update
from regard.transformer import Transformer

PARENT = os.getppid()
PEERS = Path(__file__).parent / "peers"
TINY = {"layers": 1, "d_model": 32, "d_ff": 64, "heads": 2, "vocabulary": 400}
SMOKE = "--smoke" in sys.argv
DEVICE = torch.device("cuda" if torch.cuda.is_available() and not SMOKE else "cpu")
TURNS, STEPS, TOKENS, PAIRS = (2, 2, 600, 200) if SMOKE else (5, 20, 25_000, 60_000)
KERNELS = 40
"""Kernels listed in the profile of a step: those that take longest."""
PROFILED = 1000
"""Sentences in the profile of decoding."""
RATE = 1e-4


class RandomPairs:
    """Sentence pairs whose lengths are log-normal, as those of real text are."""

    def __init__(self, pairs: int, vocabulary: int):
        random = np.random.default_rng(1)
        source = np.exp(random.normal(3.15, 0.6, pairs))
        target = source * random.normal(1.0, 0.15, pairs)
        self.source_lengths, self.target_lengths = (
            side.clip(2, 127).astype(np.int32) for side in (source, target)
        )
        self._ids = random.integers(3, vocabulary, 100_000).astype(np.uint16)

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, i: int) -> np.ndarray[Any, Any]:
        return self._ids[i % 90_000 :][: self.source_lengths[i]]

    def target(self, i: int) -> np.ndarray[Any, Any]:
        return self._ids[(7 * i + 1) % 90_000 :][: self.target_lengths[i]]


def batches_of(recipe: Recipe, pairs: int, layout: Any = "packed") -> Batches:
    return Batches(RandomPairs(pairs, recipe.tokenizer.vocabulary), recipe.data, 1, layout=layout)


def sized(recipe: Recipe) -> Recipe:
    return recipe.but(**TINY, source_tokens=TOKENS, target_tokens=TOKENS) if SMOKE else recipe


Step = Callable[[Batch], object]


def ours(recipe: Recipe, attention: str | None = "flex") -> Step:
    """The step of `regard train`, compiled with this kernel of attention; None: not compiled."""
    model, dtype = Transformer(recipe.model, recipe.tokenizer.vocabulary), torch.bfloat16
    chosen = for_training(recipe.training, DEVICE, dtype, torch.get_num_threads())
    model.to(DEVICE).train().compute_by(chosen.whole)
    by = for_update(recipe.training, DEVICE, dtype, model.parameter_count)
    optimizer = FlatAdam(model, recipe.training, dtype, by)
    smoothing = recipe.training.label_smoothing
    if attention is None or SMOKE:
        return lambda batch: update(Whole(model, smoothing), optimizer, [batch], RATE)

    def refuse(message: str) -> None:
        raise RuntimeError(message)

    steps = Compiled(model, smoothing, for_compiled_step(DEVICE, attention), refuse)
    return lambda batch: update(steps, optimizer, [batch], RATE)


def theirs(recipe: Recipe, fast: bool) -> Step:
    """The step of torch.nn.Transformer as in a tutorial; `fast`: with torch.compile's defaults."""
    sys.path.append(str(PEERS))
    from training_batches import BETAS, EPSILON, Shape
    from training_torch import Straightforward

    model_, vocabulary = recipe.model, recipe.tokenizer.vocabulary
    sizes = (model_.d_model, model_.d_ff, model_.heads, model_.layers, model_.dropout)
    names = ("d_model", "d_ff", "heads", "layers", "dropout")
    given = dict(zip(names, sizes, strict=True))
    shape = Shape(**given, label_smoothing=recipe.training.label_smoothing, vocabulary=vocabulary)
    with torch.device(DEVICE):
        model = Straightforward(shape).train()
    adam = torch.optim.Adam(model.parameters(), RATE, BETAS, EPSILON, fused=True)

    def loss(batch: Batch) -> Tensor:
        with torch.autocast(DEVICE.type, torch.bfloat16), torch.device(DEVICE):
            logits = model(batch.source.ids, batch.target.ids).flatten(0, 1)
            labels = batch.labels.flatten()
            return F.cross_entropy(logits, labels, ignore_index=0, label_smoothing=0.1)

    run = torch.compile(loss) if fast and not SMOKE else loss

    def step(batch: Batch) -> None:
        adam.zero_grad()
        run(batch).backward()
        adam.step()

    return step


def seconds(work: Callable[[], object]) -> float:
    """Seconds from the start of `work` until the device has finished it, too."""
    wait = torch.cuda.synchronize if DEVICE.type == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def wait_for_turn(folder: Path) -> None:
    """Make the file `ready`, and wait for the file `go`; exit if the parent process has ended."""
    (folder / "ready").touch()
    while not (folder / "go").exists():
        if os.getppid() != PARENT:
            sys.exit("the program that started this task has ended")
        time.sleep(0.01)


def timed(folder: Path, step: Step, recipe: Recipe, layout: str) -> dict[str, Any]:
    """The time of a step, in turns of STEPS batches that are on the device beforehand.

    First, some steps compile programs and capture graphs. Then the process waits until it has the
    device to itself, and a first turn does not count.
    """
    batches = batches_of(recipe, PAIRS, layout)
    turns = [batches.take(STEPS) for _ in range(TURNS + 1)]
    placed = [[batch.to(DEVICE) for batch in turn] for turn in turns]
    tokens = [sum(b.source_tokens + b.target_tokens for b in turn) for turn in turns[1:]]
    work = [operations(turn, recipe) for turn in turns[1:]]
    first_steps = seconds(lambda: [step(batch) for batch in placed[0][:3]])
    wait_for_turn(folder)
    took = [seconds(lambda turn=turn: [step(batch) for batch in turn]) for turn in placed][1:]
    middle = sorted(range(TURNS), key=lambda i: took[i] / tokens[i])[TURNS // 2]
    return {
        "ms": 1e3 * took[middle] / STEPS,
        "tokens_per_second": tokens[middle] / took[middle],
        "tflop_per_second": work[middle] / took[middle] / 1e12,
        "first_steps": first_steps,
        "ms_of_turns": [1e3 * t / STEPS for t in took],
        "profile": profile(lambda: step(placed[-1][0])),
    }


def operations(batches: list[Batch], recipe: Recipe) -> float:
    """The floating-point operations of training on these batches."""
    lengths: tuple[list[int], list[int]] = [], []
    for batch in batches:
        for counts, rows in zip(lengths, (batch.source, batch.target), strict=True):
            for row in rows.segments.numpy():
                counts.extend(np.bincount(row)[1:].tolist())
    return float(sum(flop(recipe.model, recipe.tokenizer.vocabulary, *lengths)))


def profile(work: Callable[[], object]) -> list[list[Any]]:
    """The kernels that take longest: name, calls, ms; [] without a GPU."""
    if DEVICE.type != "cuda":
        return []
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    with profiled(activities=[ProfilerActivity.CUDA]) as found:
        work()
        torch.cuda.synchronize()
    events = sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)
    rows = [[e.key[:100], e.count, e.self_device_time_total / 1e3] for e in events]
    return rows[:KERNELS]


def training(
    folder: Path, shape: str, attention: str | None = "flex", row_length: int | None = None
) -> dict[str, Any]:
    """Time the step of `regard train`, for a model of the paper."""
    recipe = sized({"base": BASE, "big": BIG}[shape])
    recipe = recipe.but(row_length=row_length) if row_length else recipe
    return timed(folder, ours(recipe, attention), recipe, "packed")


def straightforward(folder: Path, cudnn: bool = True, fast: bool = False) -> dict[str, Any]:
    """Time the step of torch.nn.Transformer; cuDNN's attention plans anew for each new shape."""
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    recipe = sized(BASE)
    return timed(folder, theirs(recipe, fast), recipe, "grouped")


def machine() -> dict[str, Any]:
    """The speed of memory, and of matrix products of a step's shapes."""
    size = 2**12 if SMOKE else 2**30
    source = torch.zeros(size, dtype=torch.int32, device=DEVICE)
    target = torch.empty_like(source)
    copies = [seconds(lambda: target.copy_(source)) for _ in range(5)]
    found: dict[str, Any] = {"copy_tb_per_second": 2 * source.nbytes / min(copies) / 1e12}
    del source, target
    n = 64 if SMOKE else 1
    shapes = {"8192^3": (8192, 8192, 8192)}
    for d in (512, 1024):
        names = ("QKV", 3 * d), ("output", d), ("inner", 4 * d), ("vocabulary", 37_000)
        shapes |= {f"{name}, d_model {d}": (24_832, d, columns) for name, columns in names}
    for name, sides in shapes.items():
        rows, inner, columns = (side // n for side in sides)
        x = torch.randn(rows, inner, device=DEVICE, dtype=torch.bfloat16)
        weight = torch.randn(columns, inner, device=DEVICE, dtype=torch.bfloat16)
        took = [seconds(lambda x=x, w=weight: [x @ w.t() for _ in range(5)]) for _ in range(4)]
        found[f"tflop_per_second {name}"] = 5 * 2 * rows * inner * columns / min(took) / 1e12
    return found


def pipeline() -> dict[str, Any]:
    """The time of a step whose batch is ready, or is packed in another process, or in this one."""
    from gpu_speed import batches_of as make  # the other process can import this name

    recipe = sized(BASE)
    step, packed = ours(recipe), batches_of(recipe, PAIRS)
    ahead = Prefetched(batches_of(recipe, PAIRS), partial(make, recipe, PAIRS))
    ready = [batch.to(DEVICE) for batch in packed.take(STEPS)]
    sources: dict[str, Callable[[], Iterable[Batch]]] = {
        "on the device": lambda: ready,
        "packed ahead": lambda: (ahead.take(1)[0].to(DEVICE) for _ in range(STEPS)),
        "packed here": lambda: (packed.take(1)[0].to(DEVICE) for _ in range(STEPS)),
    }

    def all_of(name: str) -> None:
        for batch in sources[name]():
            step(batch)

    all_of("on the device")
    times = {name: [seconds(partial(all_of, name)) for _ in range(TURNS)] for name in sources}
    ahead.close()
    return {f"ms {name}": 1e3 * min(took) / STEPS for name, took in times.items()}


def attention() -> dict[str, Any]:
    """Forward and backward pass of one attention over packed rows, by kernel, in ms."""
    from regard.arithmetic.flex import FlexCuda

    found: dict[str, Any] = {}
    for heads, length in ((8, 128), (8, 256), (16, 256)):
        rows = max(1, TOKENS // length)
        segments = (torch.arange(length, device=DEVICE) // 27).repeat(rows, 1)
        shape = rows, length, heads, 64
        *inputs, upstream = (
            torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2)
            for _ in range(4)
        )
        inputs = [t.requires_grad_() for t in inputs]
        mask = segments[:, None, :, None] == segments[:, None, None, :]
        flex = FlexCuda(learning=True)
        blocks = flex.mask_of_segments(segments, segments)

        def fused(kernel: SDPBackend, inputs: Any = inputs, mask: Any = mask) -> Tensor:
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(*inputs, attn_mask=mask)

        kernels: dict[str, Callable[[], Tensor]] = {
            "efficient": partial(fused, SDPBackend.EFFICIENT_ATTENTION),
            "cudnn": partial(fused, SDPBackend.CUDNN_ATTENTION),
        }
        if not SMOKE:  # it has no backward pass on a CPU
            kernels["flex"] = partial(torch.compile(flex.attend, dynamic=False), *inputs, blocks)

        for name, kernel in kernels.items():

            def turn(kernel: Any = kernel, to: Any = inputs, g: Any = upstream) -> None:
                for _ in range(STEPS):
                    torch.autograd.grad(kernel(), to, g)

            key = f"ms {name}, {heads} heads, rows of {length}"
            try:
                found[key] = 1e3 * min(seconds(turn) for _ in range(TURNS)) / STEPS
            except RuntimeError as error:
                found[key] = f"failed: {str(error)[:200]}"
    return found


def decoding(sentences: int, dtype: str = "bfloat16", streams: int | None = None) -> dict[str, Any]:
    """The speed of base with random weights, beam 4, and outputs 10 tokens longer than the source.

    With random weights, hardly any output ends earlier, so the number of output tokens is known.
    `streams` batches are decoded at the same time; None means as many as `regard translate` does.
    """
    recipe = sized(BASE).but(max_extra=10)
    pairs = RandomPairs(20 if SMOKE else sentences, recipe.tokenizer.vocabulary)
    sources = [[*pairs.source(i).tolist(), EOS] for i in range(len(pairs))]
    model = Transformer(recipe.model, recipe.tokenizer.vocabulary)
    model.to(DEVICE, getattr(torch, dtype)).eval()
    model.compute_by(for_decoding(model, DEVICE, dtype, exact=False))
    if streams is not None:
        model.by.streams = Streams(DEVICE, streams)

    def found(rows: Rows, limits: Tensor, batch: list[int]) -> list[list[Hypothesis]]:
        return search(model, rows, limits, recipe.search, by=model.by)

    def decode(sources: list[list[int]] = sources) -> None:
        Decoding(model, recipe.search, exact=False).hypotheses(sources, found, here=True)

    decode()
    took = min(seconds(decode) for _ in range(2 if SMOKE else 3))
    tokens = int(sum(pairs.source_lengths) + 11 * len(pairs))
    some = partial(decode, sources[:PROFILED])
    return {"tokens_per_second": tokens / took, "profile": profile(some)}
