"""Speed on one GPU: training steps of base and big, their input, attention's kernels, decoding.

    python benchmarks/gpu.py                 # every part that this GPU's record does not have yet
    python benchmarks/gpu.py base --again    # these parts, even if the record has them

Each part takes a few minutes and is written to the record, results/gpu-<name>.json, when it is
done, so after an interruption the same command continues. What is compared takes turns in one
process (A B C A B C ...). The median over the turns is reported, and ratios are taken within each
turn.

The text consists of random ids, in sentences as long as those of real text, 27 tokens on average.
All train on the same pairs with 25,000 + 25,000 tokens a batch: regard on packed rows, and
torch.nn.Transformer under bf16 autocast on padded batches grouped by length. Tokens of source and
target are counted together, without padding. Programs that need an environment of their own are in
training.py and decoding.py. `--smoke` runs all parts with tiny sizes on any machine, to show that
they work; it compiles nothing and keeps nothing.
"""

import argparse
import gc
import json
import re
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

from regard.arithmetic.choose import for_inference, for_training, for_update
from regard.data.batches import Batch, Batches
from regard.data.prefetch import Prefetched
from regard.data.rows import Rows
from regard.decoding import Decoding
from regard.optimizer import FlatAdam
from regard.paper import BASE, BIG
from regard.recipe import Recipe
from regard.search import Hypothesis, search
from regard.steps import Compiled, Whole
from regard.text.tokenizer import BOS, EOS, PAD
from regard.training import update
from regard.transformer import Transformer

sys.path.extend([str(Path(__file__).parent), str(Path(__file__).parent / "peers")])
import side_by_side as sides
from training import flop, lengths, shape_of
from training_batches import BETAS, EPSILON, RATE, Shape
from training_torch import Straightforward

RESULTS = Path(__file__).parent / "results"
TINY = {"layers": 1, "d_model": 32, "d_ff": 64, "heads": 2, "vocabulary": 400}
SMOKE = "--smoke" in sys.argv
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TURNS, STEPS, TOKENS, PAIRS = (2, 2, 600, 200) if SMOKE else (7, 20, 25_000, 200_000)


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


Step = Callable[[Batch], object]


def ours(recipe: Recipe, fast: bool = True) -> Step:
    """The step of `regard train`; `fast` is compiled, with CUDA graphs."""
    model, dtype = Transformer(recipe.model, recipe.tokenizer.vocabulary), torch.bfloat16
    chosen = for_training(recipe.training, DEVICE, dtype, torch.get_num_threads())
    model.to(DEVICE).train().compute_by(chosen.whole)
    by = for_update(recipe.training, DEVICE, dtype, model.parameter_count)
    optimizer = FlatAdam(model, recipe.training, dtype, by)
    smoothing = recipe.training.label_smoothing
    compiles = fast and not SMOKE
    steps = Compiled(model, smoothing, print) if compiles else Whole(model, smoothing)
    return lambda batch: update(steps, optimizer, [batch], RATE)


def theirs(recipe: Recipe, fast: bool) -> Step:
    """torch.nn.Transformer as a tutorial has it; `fast` is compiled by torch.compile's defaults."""
    with torch.device(DEVICE):
        model = Straightforward(Shape(**shape_of(recipe))).train()
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
    """Until all of it is done on the device too."""
    wait = torch.cuda.synchronize if DEVICE.type == "cuda" else lambda: None
    wait()
    begin = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begin


def in_turn(contenders: dict[str, Callable[[int], object]]) -> dict[str, list[float]]:
    """Seconds of each turn by contender; who fails leaves, and says why."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(TURNS + 2):  # the first two warm up: compiling, and capturing graphs
        for name in list(times):
            try:
                took = seconds(partial(contenders[name], turn))
            except Exception as error:
                print(f"{name}: failed: {type(error).__name__}: {str(error)[:300]}")
                del times[name]
                continue
            if turn > 1:
                times[name].append(took)
    return times


def training(recipe: Recipe) -> dict[str, Any]:
    """Steps on the same pairs; a turn is STEPS batches, which are on the device beforehand."""
    rows_of_128 = recipe.but(row_length=128)
    loops: dict[str, tuple[Step, Recipe, str]] = {
        "regard": (ours(recipe), recipe, "packed"),
        "regard, rows of 128": (ours(rows_of_128), rows_of_128, "packed"),
        "regard, not compiled": (ours(recipe, fast=False), recipe, "packed"),
        "torch.nn.Transformer": (theirs(recipe, fast=False), recipe, "grouped"),
        "torch.nn.Transformer, compiled": (theirs(recipe, fast=True), recipe, "grouped"),
    }
    turns: dict[str, list[list[Batch]]] = {}
    work: dict[str, list[int]] = {}
    for name, (_, own, layout) in loops.items():
        batches = batches_of(own, PAIRS, layout)
        some = [batches.take(STEPS) for _ in range(TURNS + 2)]
        turns[name] = [[batch.to(DEVICE) for batch in turn] for turn in some]
        vocabulary = own.tokenizer.vocabulary
        work[name] = [sum(flop(own.model, vocabulary, *lengths(turn))) for turn in some[2:]]

    def contender(name: str, turn: int) -> None:
        for batch in turns[name][turn]:
            loops[name][0](batch)

    times = in_turn({name: partial(contender, name) for name in loops})
    figures: dict[str, Any] = {}
    for name, took in times.items():
        tokens = [sum(b.source_tokens + b.target_tokens for b in turn) for turn in turns[name][2:]]
        figures[name] = {
            "ms_per_step": [1e3 * t / STEPS for t in took],
            "tokens_per_second": [n / t for n, t in zip(tokens, took, strict=True)],
            "tflop_per_second": [n / t / 1e12 for n, t in zip(work[name], took, strict=True)],
        }
    return figures


def pipeline() -> dict[str, Any]:
    """Whether a step waits for its batch: from the other process, here, and not at all."""
    from gpu import batches_of as make  # by a name that the other process can import

    recipe = sized(BASE)
    step, packed = ours(recipe), batches_of(recipe, PAIRS)
    ahead = Prefetched(batches_of(recipe, PAIRS), partial(make, recipe, PAIRS))
    ready = [batch.to(DEVICE) for batch in packed.take(STEPS)]
    sources: dict[str, Callable[[], Iterable[Batch]]] = {
        "packed ahead": lambda: (ahead.take(1)[0].to(DEVICE) for _ in range(STEPS)),
        "packed here": lambda: (packed.take(1)[0].to(DEVICE) for _ in range(STEPS)),
        "on the device": lambda: ready,
    }

    def contender(name: str, turn: int) -> None:
        for batch in sources[name]():
            step(batch)

    times = in_turn({name: partial(contender, name) for name in sources})
    ahead.close()
    return {name: {"ms_per_step": [1e3 * t / STEPS for t in took]} for name, took in times.items()}


def attention() -> dict[str, Any]:
    """Forward and backward of one attention over packed rows, by kernel, in ms."""
    figures: dict[str, Any] = {}
    for heads, length in ((8, 128), (8, 256), (16, 256)):
        rows = max(1, TOKENS // length)
        segments = (torch.arange(length, device=DEVICE) // 27).expand(rows, length)
        mask = segments[:, None, :, None] == segments[:, None, None, :]
        shape = rows, length, heads, 64
        q, k, v, upstream = (
            torch.randn(shape, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2)
            for _ in range(4)
        )
        inputs = [t.requires_grad_() for t in (q, k, v)]

        def fused(kernel: SDPBackend, inputs: list[Tensor] = inputs, mask: Tensor = mask) -> Tensor:
            with sdpa_kernel(kernel):
                return F.scaled_dot_product_attention(*inputs, attn_mask=mask)

        def plain(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
            scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
            return scores.masked_fill(~mask, -1e4).softmax(-1) @ v

        program = plain if SMOKE else torch.compile(plain, dynamic=False)
        kernels: dict[str, Callable[[], Tensor]] = {
            "efficient": partial(fused, SDPBackend.EFFICIENT_ATTENTION),
            "cuDNN": partial(fused, SDPBackend.CUDNN_ATTENTION),
            "math": partial(fused, SDPBackend.MATH),
            "softmax, compiled": partial(program, *inputs, mask),
        }

        def contender(
            kernel: Callable[[], Tensor], turn: int, g: Tensor = upstream, to: Any = inputs
        ) -> None:
            for _ in range(STEPS):
                torch.autograd.grad(kernel(), to, g)

        times = in_turn({name: partial(contender, kernel) for name, kernel in kernels.items()})
        for name, took in times.items():
            ms = [1e3 * t / STEPS for t in took]
            figures[f"{name}, {heads} heads, rows of {length}"] = {"ms": ms}
    return figures


def decoding() -> dict[str, Any]:
    """Base with random weights, 1,000 sentences, beam 4, outputs as long as the source and 10 more.

    Random weights all but never end a sentence, so that the count of output tokens is known.
    """
    recipe = sized(BASE).but(max_extra=10)
    pairs = RandomPairs(20 if SMOKE else 1000, recipe.tokenizer.vocabulary)
    sources = [[*pairs.source(i).tolist(), EOS] for i in range(len(pairs))]

    def contender(name: str, turn: int) -> None:
        model = models[name]

        def found(rows: Rows, limits: Tensor, batch: list[int]) -> list[list[Hypothesis]]:
            signs = {"bos": BOS, "eos": EOS, "pad": PAD}
            return search(model, rows, limits, recipe.search, **signs, ranker=model.by.most_likely)

        Decoding(model, recipe.search, exact=False).hypotheses(sources, found)

    models: dict[str, Transformer] = {}
    for dtype in (torch.bfloat16, torch.float32):
        model = Transformer(recipe.model, recipe.tokenizer.vocabulary).to(DEVICE, dtype).eval()
        model.compute_by(for_inference(DEVICE, dtype))
        models[str(dtype).removeprefix("torch.")] = model
    times = in_turn({name: partial(contender, name) for name in models})
    tokens = int(sum(pairs.source_lengths) + 11 * len(pairs))
    return {name: {"tokens_per_second": [tokens / t for t in took]} for name, took in times.items()}


def sized(recipe: Recipe) -> Recipe:
    return recipe.but(**TINY, source_tokens=TOKENS, target_tokens=TOKENS) if SMOKE else recipe


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "base": lambda: training(sized(BASE)),
    "big": lambda: training(sized(BIG)),
    "pipeline": pipeline,
    "attention": attention,
    "decoding": decoding,
}


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    """Medians and spreads, and how many times faster the first contender is."""
    found: dict[str, Any] = {}
    for name, measured in figures.items():
        found[name] = {key: sides.Spread.of(of)._asdict() for key, of in measured.items()}
        for key, better in (("tokens_per_second", 1), ("ms_per_step", -1)):
            first = next(iter(figures.values())).get(key)
            if first and key in measured:
                faster = sides.ratio(*((first, measured[key])[::better]))
                found[name]["first_is_faster"] = faster._asdict()
                break
    return found


def show(part: str, found: dict[str, Any]) -> None:
    keys = list(dict.fromkeys(key for spreads in found.values() for key in spreads))
    rows = [
        [name, *(sides.Spread(**of[key]).text(",.2f") if key in of else "-" for key in keys)]
        for name, of in found.items()
    ]
    sides.print_table([part, *(key.replace("_", " ") for key in keys)], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--again", action="store_true", help="also what the record has")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, on whatever is here")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no part {unknown.pop()!r}; there are: {', '.join(PARTS)}")
    if DEVICE.type != "cuda" and not SMOKE:
        sys.exit("this measures a GPU, and PyTorch finds none here; training.py measures a CPU")
    name = "smoke" if SMOKE else torch.cuda.get_device_name()
    path = RESULTS / f"gpu-{re.sub('[^a-z0-9]+', '-', name.lower())}.json"
    record = json.loads(path.read_text()) if path.exists() else {"device": name, "parts": {}}
    for part in args.parts or PARTS:
        if part in record["parts"] and not args.again:
            print(f"{part}: is in {path}; --again measures it again")
            continue
        about = sides.circumstances(torch.get_num_threads()) | {"torch": torch.__version__}
        torch.manual_seed(1)
        found = summary(PARTS[part]())
        if DEVICE.type == "cuda":
            about["peak_memory"] = torch.cuda.max_memory_allocated()
        record["parts"][part] = {**about, "contenders": found}
        show(part, found)
        if not SMOKE:
            path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        gc.collect()
        if DEVICE.type == "cuda":
            torch._dynamo.reset()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    main()
