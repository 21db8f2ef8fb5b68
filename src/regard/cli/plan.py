"""`regard train --plan`, and what a start of training says of its size."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.cli.console import note

if TYPE_CHECKING:
    from regard.machine.processes import Processes
    from regard.measure.plan import Disk, Memory, Plan
    from regard.recipe import DataRecipe, Recipe
    from regard.run.directory import Run

BYTES = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "bytes": 1.0}
SECONDS = {"days": 86_400.0, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}
NUMBERS = {"M": 1e6, "thousand": 1e3, "": 1.0}


def print_plan(
    recipe: "Recipe",
    out: Path,
    data: Path,
    processes: "Processes",
    micro_batches: int | None,
    shard: bool,
    quiet: bool,
) -> None:
    """Plan a run and print it; all processes try, and the first one prints."""
    from regard.measure.plan import plan

    tell = note if processes.first and not quiet else (lambda message: None)
    made = plan(recipe, data, out, processes, micro_batches, shard, tell)
    if processes.first:
        typer.echo("\n".join(f"{name:15}{text}" for name, text in _lines(made, recipe).items()))
        warn_of_little_disk(out, made.disk)


def announce(run: "Run", quiet: bool) -> None:
    """At a start of training: what it keeps in memory and on disk, and what looks unintended."""
    from regard.measure.plan import outline

    found = outline(run.recipe, run.tokenizer.size, run.dtype, run.directory, run.shares)
    if not quiet:
        note(f"memory {_in(sum(found.memory), BYTES)} and each batch's; disk {_disk(found.disk)}")
    training = run.recipe.training
    if training.warmup_steps >= training.steps and not quiet:
        note(
            f"training.warmup_steps = {training.warmup_steps:,} of training.steps = "
            f"{training.steps:,}: the rate rises to the end and never falls"
        )
    warn_of_little_disk(run.directory, found.disk)


def warn_of_little_disk(out: Path, disk: "Disk") -> None:
    """Say so where a run would end on a full disk."""
    if disk.free < disk.needed:
        first = " and not even one checkpoint has room" * (disk.free < disk.checkpoint)
        note(
            f"{out}: too little disk: {_in(disk.needed, BYTES)} will be needed, "
            f"{_in(disk.free, BYTES)} are free{first}: make room, or lower training.keep"
        )


def _lines(plan: "Plan", recipe: "Recipe") -> dict[str, str]:
    """By name."""
    from regard.paper import BASE, BASE_TIME, BIG_TIME

    embedding, encoder, decoder = (_in(count, NUMBERS) for count in plan.parameters)
    rows, source, target = plan.part
    rules, accumulate = recipe.data, recipe.training.accumulate
    return {
        "parameters": f"{_in(sum(plan.parameters), NUMBERS)}: "
        f"embedding {embedding}, encoder {encoder}, decoder {decoder}",
        "memory": _memory(plan.memory, plan.dtype),
        "largest batch": f"{rows} x {source} source and {rows} x {target} target tokens took "
        f"{_in(plan.part_memory, BYTES)} more; {_in(plan.room, BYTES)} were free on {plan.device}",
        "a step": f"{_tokens(rules, accumulate)} at most, by {_processes(plan.processes)}: "
        f"--micro-batches {plan.micro_batches}",
        "the paper's": f"{_tokens(BASE.data, BASE.training.accumulate)}: "
        f"--micro-batches {plan.paper_micro_batches} "
        f"--set training.accumulate={plan.paper_accumulate}",
        "time": f"{_in(plan.step_seconds, SECONDS)} a step, the median of {plan.timed}; "
        f"{_in(plan.seconds_left, SECONDS)} for the {plan.steps_left:,} steps that are left",
        "operations": f"{_power(plan.flop_per_step)} a step, {_power(plan.flop)} for all "
        f"{plan.steps:,} (the paper's estimates: base {_power(BASE_TIME.flops)}, "
        f"big {_power(BIG_TIME.flops)})",
        "disk": _disk(plan.disk),
    }


def _memory(memory: "Memory", dtype: str) -> str:
    parts = {
        f"weights in {dtype}": memory.weights,
        "weights in float32": memory.master,
        "gradient": memory.gradient,
        "moments": memory.moments,
    }
    told = ", ".join(f"{name} {_in(size, BYTES)}" for name, size in parts.items() if size)
    return f"{_in(sum(memory), BYTES)}: {told}"


def _disk(disk: "Disk") -> str:
    return (
        f"{_in(disk.needed, BYTES)} for {disk.checkpoints} checkpoints of "
        f"{_in(disk.checkpoint, BYTES)} and the model; {_in(disk.free, BYTES)} are free"
    )


def _tokens(rules: "DataRecipe", batches: int) -> str:
    return f"{rules.source_tokens * batches:,} + {rules.target_tokens * batches:,} tokens"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _power(value: float) -> str:
    return f"{value:.1e}".replace("e+", "e")


def _in(value: float, units: Mapping[str, float]) -> str:
    """Three digits, in the largest unit of which there is one: 1_260_000_000 is "1.26 GB"."""
    fitting = [(unit, size) for unit, size in units.items() if value >= 0.9995 * size]
    unit, size = fitting[0] if fitting else list(units.items())[-1]
    scaled = value / size
    return f"{scaled:,.0f} {unit}".rstrip() if scaled >= 1000 else f"{scaled:.3g} {unit}".rstrip()
