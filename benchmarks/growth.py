"""Growth of cost: time and memory per token, by the length of rows and the number of sentences.

    .venv/bin/python benchmarks/growth.py --keep benchmarks/results

It measures three kinds of work, in bf16 if the processor supports it, on random tokens without
padding:

    train    forward pass, loss and backward pass of rows of n source and n target tokens
    encode   the encoder stack on rows of n tokens, as in translation
    decode   8 steps of beam 4 on sentences of n tokens, of which n tokens are translated already

n doubles from 16 to 4,096, with one row, and (except for decode) with as many rows as make 4,096
tokens. The number of sentences doubles from 1 to 64 at n = 32. Times are medians, per token of
source and target (train), of source (encode) or of output (decode). Memory is the most that the
work took in addition to weights, gradients and the code that oneDNN makes for new shapes, per token
of the rows. Each point is measured in a process of its own, so that none inherits the memory of
another.

`x` is the greatest factor by which a cost per token grows when n or the number of sentences
doubles. When n doubles, the factor of attention alone would be 2; when the number of sentences
doubles, the factor should be at most 1. The last table encodes one row of the greatest length with
1 layer and with 6: scores that are kept from layer to layer would show in the memory.
"""

import argparse
import ctypes
import itertools
import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import torch

from regard.arithmetic.choose import choose_dtype, for_decoding, for_training
from regard.data.batches import Batch
from regard.data.rows import one_per_row
from regard.decoder_state import DecoderState
from regard.machine.devices import keep_freed_memory
from regard.recipe import Recipe
from regard.steps import batch_loss
from regard.transformer import Transformer

sys.path.extend([str(Path(__file__).parent), str(Path(__file__).parent / "peers")])
import side_by_side as sides
from training import SHAPES, shape_of
from worker import peak_memory

CPU = torch.device("cpu")
SHORTEST, AT_LENGTH = 16, 32
BEAM, STEPS = 4, 8
LAYERS = (1, 6)
TURNS = 3
"""A point is timed at least this many times, and for at least the seconds of --seconds."""


class Point(NamedTuple):
    """One measurement, which has a process of its own."""

    work: str
    """train, encode or decode."""
    rows: int
    length: int
    """n, of each row; in training on both sides."""
    layers: int

    @property
    def held(self) -> int:
        """The number of tokens by which memory is divided."""
        return self.rows * self.length * (2 if self.work == "train" else 1)

    @property
    def done(self) -> int:
        """The number of tokens by which time is divided."""
        return self.rows * STEPS if self.work == "decode" else self.held


def doubling(first: int, last: int) -> list[int]:
    """The sizes `first`, 2 x `first`, 4 x `first`, ..., up to `last`."""
    return [first << i for i in range((last // first).bit_length())]


def series(args: argparse.Namespace, layers: int) -> dict[str, list[Point]]:
    """The points of each series; its name says which size grows."""
    lengths, sentences = doubling(SHORTEST, args.longest), doubling(1, args.sentences)
    found = {}
    for work in WORK:
        if work != "decode":  # its time per token depends on the rows, whose number would change
            found[f"{work}, n"] = [Point(work, args.longest // n, n, layers) for n in lengths]
        found |= {
            f"{work}, n of one row": [Point(work, 1, n, layers) for n in lengths],
            f"{work}, sentences": [Point(work, rows, AT_LENGTH, layers) for rows in sentences],
        }
    return found | {"encode, layers": [Point("encode", 1, args.longest, n) for n in LAYERS]}


def random_rows(point: Point, vocabulary: int) -> Any:
    return one_per_row(torch.randint(3, vocabulary, (point.rows, point.length)).tolist())


def model_of(point: Point, shape: str) -> tuple[Transformer, int]:
    """A model with random weights, and the size of its vocabulary."""
    recipe = SHAPES[shape].but(layers=point.layers)
    vocabulary = recipe.tokenizer.vocabulary
    return Transformer(recipe.model, vocabulary).to(choose_dtype("auto", CPU)), vocabulary


def for_translation(point: Point, shape: str) -> tuple[Transformer, int]:
    """A model whose weights have the fastest layout for translation, and its vocabulary's size."""
    model, vocabulary = model_of(point, shape)
    model.compute_by(for_decoding(model, CPU, "auto", exact=False))
    return model.eval(), vocabulary


def train(point: Point, shape: str) -> Callable[[], float]:
    model, vocabulary = model_of(point, shape)
    dtype, threads = model.embedding.tokens.weight.dtype, torch.get_num_threads()
    model.train().compute_by(for_training(Recipe().training, CPU, dtype, threads).whole)
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    source, target = random_rows(point, vocabulary), random_rows(point, vocabulary)
    tokens = point.rows * point.length
    batch = Batch(source, target, target.ids, tokens, tokens)

    def turn() -> float:
        begin = time.perf_counter()
        batch_loss(model, batch, 0.1)[0].backward()
        return time.perf_counter() - begin

    return turn


def encode(point: Point, shape: str) -> Callable[[], float]:
    model, vocabulary = for_translation(point, shape)
    rows = random_rows(point, vocabulary)

    @torch.inference_mode()
    def turn() -> float:
        begin = time.perf_counter()
        model.encode(rows)
        return time.perf_counter() - begin

    return turn


def decode(point: Point, shape: str) -> Callable[[], float]:
    model, vocabulary = for_translation(point, shape)
    rows = random_rows(point, vocabulary)
    tokens = torch.randint(3, vocabulary, (STEPS, point.rows * BEAM))

    @torch.inference_mode()
    def turn() -> float:
        state = in_the_midst(model, model.start(rows), point)
        begin = time.perf_counter()
        for last in tokens:
            _, state = model.step(last, state)
        return time.perf_counter() - begin

    return turn


def in_the_midst(model: Transformer, state: DecoderState, point: Point) -> DecoderState:
    """The state after n tokens, which all hypotheses of a beam share; n is the source's length."""
    n = point.length
    both = ((memory.keys[:, :, :n], memory.values[:, :, :n]) for memory in state.memory)
    past = (model.by.cache(keys.clone(), values.clone()) for keys, values in both)
    shared = torch.ones(point.rows, BEAM, n, dtype=torch.bool)
    filled = torch.full((point.rows,), n)
    return replace(state, past=tuple(past), ancestry=shared, filled=filled, length=n)


WORK: dict[str, Callable[[Point, str], Callable[[], float]]] = {
    "train": train,
    "encode": encode,
    "decode": decode,
}


def measured(point: Point, shape: str, threads: int, enough: float) -> dict[str, Any]:
    """Time and memory of a point; to be called once in a process."""
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    turn = WORK[point.work](point, shape)
    keep_freed_memory()
    turn()  # oneDNN generates code for these shapes: some 10 MB, once
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # else memory that was freed before would be used again
    Path("/proc/self/clear_refs").write_text("5")  # count the peak anew, from now on
    before = peak_memory()
    turn()
    memory = peak_memory() - before
    seconds = [turn()]
    while len(seconds) < TURNS or sum(seconds) < enough:
        seconds.append(turn())
    return {
        **point._asdict(),
        "seconds": sides.Spread.of(seconds)._asdict(),
        "peak_memory": memory,
        "microseconds_per_token": 1e6 * sides.Spread.of(seconds).median / point.done,
        "bytes_per_token": memory / point.held,
    }


def growth(points: Sequence[dict[str, Any]], cost: str) -> float:
    """The greatest factor of a cost from one point to the next."""
    costs = [point[cost] for point in points]
    return max(b / max(a, 1e-9) for a, b in itertools.pairwise(costs))


def show(name: str, points: Sequence[dict[str, Any]]) -> None:
    """Print one series as a table."""
    print(f"\n{name}")
    header = ["n", "rows", "layers", "ms", "us/token", "peak MB", "KB/token"]
    rows = [
        [
            f"{p['length']:,}",
            str(p["rows"]),
            str(p["layers"]),
            sides.Spread(**{k: 1e3 * v for k, v in p["seconds"].items()}).text(".1f"),
            f"{p['microseconds_per_token']:.1f}",
            f"{p['peak_memory'] / 1e6:,.1f}",
            f"{p['bytes_per_token'] / 1e3:,.1f}",
        ]
        for p in points
    ]
    grown = [f"{growth(points, c):.2f}" for c in ("microseconds_per_token", "bytes_per_token")]
    sides.print_table(header, [*rows, ["x", "", "", "", grown[0], "", grown[1]]])


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(os.sched_getaffinity(0))
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--longest", type=int, default=4096, help="n goes up to this")
    parser.add_argument("--sentences", type=int, default=64, help="the most sentences at n = 32")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each point, at least")
    parser.add_argument("--threads", type=int, default=cores, help="default: all cores")
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK))
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="write a JSON record there")
    return parser.parse_args()


def main() -> None:
    args = parsed()
    recipe = SHAPES[args.shape]
    record = {
        "benchmark": "growth",
        **sides.circumstances(args.threads),
        "torch": torch.__version__,
        "precision": str(choose_dtype("auto", CPU)),
        "shape": shape_of(recipe),
        "beam": BEAM,
        "steps": STEPS,
        "series": {},
    }
    # Processes are forked from one that has imported PyTorch and computed nothing yet.
    context = get_context("forkserver")
    context.set_forkserver_preload(["regard.training"])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        for name, points in series(args, recipe.model.layers).items():
            if points[0].work in args.only:
                done = [
                    pool.submit(measured, point, args.shape, args.threads, args.seconds).result()
                    for point in points
                ]
                record["series"][name] = done
                show(name, done)
    if args.keep:
        print(sides.keep(record, args.keep, "growth"))


if __name__ == "__main__":
    main()
