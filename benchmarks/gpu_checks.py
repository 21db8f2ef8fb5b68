"""Tasks of gpu.py that check what a GPU computes: against fp64 on the CPU, and against itself."""

import copy
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from gpu_speed import DEVICE, SMOKE, RandomPairs, batches_of, sized
from torch import Tensor

from regard.arithmetic import cuda
from regard.arithmetic.choose import for_compiled_step, for_decoding, for_inference
from regard.arithmetic.cuda import Cuda
from regard.arithmetic.plain import PLAIN
from regard.data.batches import Batch
from regard.data.rows import Rows, one_per_row
from regard.decoding import Decoding
from regard.hypotheses import Hypothesis
from regard.machine import devices
from regard.machine.compiled import forget_programs
from regard.machine.processes import OutOfMemory
from regard.machine.streams import Streams
from regard.measure.validation import loss_and_accuracy
from regard.optimizer import FlatAdam
from regard.paper import BASE
from regard.recipe import Recipe
from regard.search import search
from regard.steps import Compiled, Steps, Whole, batch_loss
from regard.text.tokenizer import BOS, EOS, PAD
from regard.training import update
from regard.transformer import Transformer

LIMITS = {torch.float32: 1e-5, torch.bfloat16: 5e-2}
"""The greatest relative error of a loss and of all gradients together, against fp64; on a CPU the
errors of the same code are 1e-6 and 3.5e-2."""
SMALL = Recipe().but(
    layers=2, d_model=64, d_ff=96, heads=4, vocabulary=1003, dropout=0.0, row_length=128,
    source_tokens=512 if SMOKE else 2048, target_tokens=512 if SMOKE else 2048, max_length=128,
)  # fmt: skip
BLEU = 38.0
"""The least BLEU of "learning": an H200 reached 41.8 on Multi30k."""


def model_of(recipe: Recipe) -> Transformer:
    torch.manual_seed(1)
    return Transformer(recipe.model, recipe.tokenizer.vocabulary).train()


def gradients(model: Transformer, batch: Batch, by: Any) -> tuple[Tensor, Tensor]:
    """The losses and all gradients of a batch, computed by `by`, then copied to fp64 on the CPU."""
    model.compute_by(by)
    for parameter in model.parameters():
        parameter.grad = None
    smoothed, plain = batch_loss(model, batch, 0.1)
    smoothed.backward()
    all_ = [p.grad.double().flatten().cpu() for p in model.parameters() if p.grad is not None]
    return torch.stack([smoothed.detach(), plain]).double().cpu(), torch.cat(all_)


def relative(found: Tensor, right: Tensor) -> float:
    return float((found - right).norm() / right.norm())


def equations() -> dict[str, Any]:
    """Check losses and gradients of a GPU, not compiled, against the definitions in fp64."""
    found: dict[str, float] = {}
    for d_k, row_length in ((16, 128), (24, 136)):  # 24 and 136 are no powers of 2
        recipe = SMALL.but(d_k=d_k, d_v=d_k, row_length=row_length, max_length=row_length)
        [batch] = batches_of(recipe, 2000).take(1)
        batch.source.segments[0] = 0  # its targets have no keys to attend to
        right = gradients(model_of(recipe).double(), batch, PLAIN)
        for dtype in LIMITS:
            model = model_of(recipe).to(DEVICE, dtype)
            mine = gradients(model, batch.to(DEVICE), Cuda(learning=True))
            name = f"{str(dtype).removeprefix('torch.')}, heads of {d_k}"
            found[f"loss, {name}"], found[f"gradient, {name}"] = map(relative, mine, right)
    limits = {"float32": LIMITS[torch.float32], "bfloat16": LIMITS[torch.bfloat16]}
    passes = all(error < limits[key.split(", ")[1]] for key, error in found.items())
    passes = passes and (cuda.SOFTMAX_GRADIENT.run is not None or SMOKE)
    return {"passes": passes, **found}


@torch.inference_mode()
def searching() -> dict[str, Any]:
    """Check a search in fp32: the share of hypotheses that the definitions on the CPU give, too."""
    model = model_of(SMALL).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.6)  # so that continuations differ in likelihood
    draw = torch.Generator().manual_seed(1)
    longest, more = (9, 4) if SMOKE else (30, 20)
    lengths = torch.randint(2, longest, (40,), generator=draw).tolist()
    sources = [[*torch.randint(3, 1003, (n,), generator=draw).tolist(), EOS] for n in lengths]
    results = {}
    for device in (torch.device("cpu"), DEVICE):
        placed = copy.deepcopy(model).to(device)
        placed.compute_by(PLAIN if device.type == "cpu" else for_inference(device, torch.float32))
        rows = one_per_row(sources).to(device)
        limits = (rows.segments != 0).sum(1) + more
        for beam in (1, 4, 7):
            recipe = SMALL.but(beam=beam).search
            best = search(placed, rows, limits, recipe, by=placed.by, n_best=min(beam, 2))
            results[device.type, beam] = [h.tokens for one in best for h in one]
    found = {}
    for beam in (1, 4, 7):
        mine, right = results[DEVICE.type, beam], results["cpu", beam]
        found[f"same, beam {beam}"] = alike(mine, right)
    mine, right = in_streams(placed, sources * 5, more), results["cpu", 4][::2] * 5
    found["same, in streams"] = alike(mine, right)
    found["attended, bf16"] = attended()
    found["ranked, fp32"], found["ranked, bf16"] = map(ranked, (torch.float32, torch.bfloat16))
    if not SMOKE:
        kernels = cuda.ATTEND, cuda.WRITE, cuda.ADD_NORM, cuda.RANKING, cuda.SUMMARY
        found["kernels in use"] = sum(k.run is not None for k in kernels) / len(kernels)
    return {"passes": min(found.values()) >= 0.99, **found}


def alike(mine: list[Any], right: list[Any]) -> float:
    """The share of entries that are the same."""
    return sum(a == b for a, b in zip(mine, right, strict=True)) / len(right)


def in_streams(model: Transformer, sources: list[list[int]], more: int) -> list[tuple[int, ...]]:
    """The best hypotheses, with a beam of 4, of sentences decoded in batches at the same time."""
    recipe = SMALL.but(beam=4, max_extra=more).search
    model.compute_by(by := for_decoding(model, DEVICE, "fp32", exact=False))
    by.streams, by.batch_tokens = Streams(DEVICE, 3), 600

    def found(rows: Rows, limits: Tensor, batch: list[int]) -> list[list[Hypothesis]]:
        return search(model, rows, limits, recipe, by=by)

    decoding = Decoding(model, recipe, exact=False)
    return [best.tokens for best, *_ in decoding.hypotheses(sources, found, here=True)]


def attended() -> float:
    """The share of attention's outputs in bf16, for few queries, that are near the definition."""
    query, keys, values = (
        torch.randn(100, 8, n, 64, device=DEVICE, dtype=torch.bfloat16) for n in (4, 90, 90)
    )
    allowed = torch.rand(100, 1, 4, 80, device=DEVICE) < 0.5
    by = Cuda(learning=False)
    mine = by.attend(query, keys[:, :, :80], values[:, :, :80], by.mask(allowed)).double()
    right = PLAIN.attend(
        *(x.double()[:, :, :80] for x in (query, keys, values)), PLAIN.mask(allowed)
    )
    return float(((mine - right).abs() < 0.02).double().mean())


def ranked(dtype: torch.dtype) -> float:
    """The share of continuations that a GPU's kernels find as the definition does."""
    logits = torch.randn(400, 37_000, device=DEVICE).mul_(3).to(dtype)
    logits[:4] = -torch.inf
    live = torch.randn(100, 4, device=DEVICE)
    mine = Cuda(learning=False).most_likely(live, logits, (PAD, BOS), 8)
    right = PLAIN.most_likely(live, logits, (PAD, BOS), 8)
    possible = right.log_p > -torch.inf
    same = (mine.parents == right.parents) & (mine.tokens == right.tokens)
    return float(same[possible].double().mean())


def learned(
    make: Callable[[Transformer], Steps], recipe: Recipe, batches: list[Batch], parts: int = 1
) -> tuple[Tensor, Tensor]:
    """The losses of one update for each batch, and Adam's first moment, a sum of gradients.

    `parts` is 1, or 2 for batches that are divided into halves.
    """
    model = model_of(recipe).to(DEVICE)
    model.compute_by(Cuda(learning=True))
    optimizer = FlatAdam(model, recipe.training, torch.float32, Cuda(learning=True))
    steps = make(model)
    losses = []
    for batch in batches:
        some = [batch] if parts == 1 else batch.halves()
        losses.append(update(steps, optimizer, some, 1e-3).per_token())
    return torch.tensor(losses).double(), optimizer.state()["exp_avg"].double().cpu()


def whole(model: Transformer) -> Steps:
    return Whole(model, 0.1)


def compiled(kernel: str) -> Callable[[Transformer], Steps]:
    """A function that makes the compiled step of a model; in a smoke run, it is not compiled."""

    def refuse(message: str) -> None:
        raise RuntimeError(message)

    def make(model: Transformer) -> Steps:
        if SMOKE:
            return Whole(model, 0.1)
        return Compiled(model, 0.1, for_compiled_step(DEVICE, kernel), refuse)

    return make


def on_device(batches: list[Batch]) -> list[Batch]:
    return [batch.to(DEVICE) for batch in batches]


def compiling(kernel: str) -> dict[str, Any]:
    """Check compiled steps by CUDA graphs against plain ones, also for halved batches, in fp32.

    Compared are the gradient of the first step and the losses of five. Later gradients differ more:
    Adam divides each number by its size, so that a gradient that is only rounding, as that of the
    bias of the keys, changes its weight as much as any other.
    """
    batches = on_device(batches_of(SMALL, 20_000).take(5))
    found = {}
    for name, some, which in (("gradient", batches[:1], 1), ("losses", batches, 0)):
        right = learned(whole, SMALL, some)[which]
        for parts in (1, 2):
            mine = learned(compiled(kernel), SMALL, some, parts)[which]
            found[f"{name} in {parts} parts"] = relative(mine, right)
    return {"passes": max(found.values()) < LIMITS[torch.float32], **found}


def dropout() -> dict[str, Any]:
    """Check that each replay draws dropout anew: losses of one batch differ, without learning."""
    recipe = SMALL.but(dropout=0.3)
    batches = on_device(batches_of(recipe, 20_000).take(1)) * 6
    model = model_of(recipe).to(DEVICE)
    model.compute_by(Cuda(learning=True))
    optimizer = FlatAdam(model, recipe.training, torch.float32)
    steps = compiled("efficient")(model)
    losses = [update(steps, optimizer, [batch], 0.0).per_token()[0] for batch in batches]
    spread = (max(losses) - min(losses)) / losses[0]
    return {"passes": len(set(losses)) == len(losses) and spread < 0.2, "spread": spread}


def deterministic() -> dict[str, Any]:
    """Check `--deterministic`: the same updates, made twice, agree to the last bit."""
    devices.be_deterministic()
    batches = on_device(batches_of(SMALL.but(dropout=0.1), 20_000).take(3))
    runs = []
    for _ in range(2):
        torch.manual_seed(2)
        runs.append(learned(compiled("efficient"), SMALL.but(dropout=0.1), batches))
    same = all(torch.equal(a, b) for a, b in zip(*runs, strict=True))
    return {"passes": same}


@contextmanager
def memory_limited(bytes_: float) -> Iterator[None]:
    """During the block, PyTorch may use only this many bytes of the GPU's memory."""
    if DEVICE.type != "cuda":
        yield
        return
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(bytes_ / torch.cuda.mem_get_info()[1])
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def memory() -> dict[str, Any]:
    """Check three cases of scarce memory.

    A first step that has too little raises OutOfMemory. A validation after steps by CUDA graphs
    ends well with the memory that the steps reserved, and 512 MiB. Then the memory of the graphs is
    given back.
    """
    recipe = sized(BASE.but(layers=2))
    batches = on_device(batches_of(recipe, 20_000).take(3))
    model = model_of(recipe).to(DEVICE)
    model.compute_by(Cuda(learning=True))
    optimizer = FlatAdam(model, recipe.training, torch.bfloat16, Cuda(learning=True))
    kept = torch.cuda.memory_allocated() if DEVICE.type == "cuda" else 0
    ran_out = SMOKE
    with memory_limited(kept + 2**28):
        try:
            update(whole(model), optimizer, batches[:1], 1e-3)
        except OutOfMemory:
            ran_out = True
    devices.free_memory(DEVICE)
    steps = compiled("efficient")(model)
    for batch in batches:
        update(steps, optimizer, [batch], 1e-3)
    devices.free_memory(DEVICE)
    reserved = torch.cuda.memory_reserved() if DEVICE.type == "cuda" else 0
    with memory_limited(reserved + 2**29), model.computing_by(Cuda(learning=False)):
        model.eval()
        loss, _ = loss_and_accuracy(model, RandomPairs(500, recipe.tokenizer.vocabulary), recipe)
    forget_programs(DEVICE)
    left = torch.cuda.memory_reserved() if DEVICE.type == "cuda" else -1
    passes = ran_out and loss == loss and left < reserved
    return {"passes": passes, "reserved": reserved, "reserved at the end": left}


def learning(data: Path | None) -> dict[str, Any]:
    """Check the best BLEU of a training on prepared data (Multi30k) by the public function."""
    from regard.api import train

    assert data is not None, "give --data"
    changes = {"training.steps": 20 if SMOKE else 6000, "training.tune": False}
    scores: list[float] = []

    def hear(record: dict[str, Any]) -> None:
        if record["event"] == "validation":
            scores.append(record.get("bleu", 0.0))
            print(f"step {record['step']}: BLEU {scores[-1]:.2f}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as out:
        train(out=Path(out) / "run", data=data, changes=changes, progress=hear, warn=print)
    return {"passes": max(scores) >= BLEU or SMOKE, "bleu": max(scores)}
