"""The output of `regard train --plan`, and the note on memory and disk when training starts."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from regard.amounts import BYTES, NUMBERS, SECONDS, amount, count_of
from regard.cli.console import note

if TYPE_CHECKING:
    from regard.cli.train import RunOptions
    from regard.machine.processes import Processes
    from regard.measure.outline import Disk, Memory, Outline
    from regard.measure.plan import Plan
    from regard.recipe import DataRecipe, Recipe
    from regard.start import Start


def print_plan(
    recipe: "Recipe",
    data: Path,
    out: Path,
    processes: "Processes",
    options: "RunOptions",
    *,
    quiet: bool,
) -> None:
    """Plan a run and print the plan; all processes take part, and the first one prints.

    Raises RecipeError if the run was begun with another recipe and `options` do not accept changes,
    TrainingError if a batch cannot be divided into as many parts as `options` ask for, and the
    errors of `begun` and `plan`.
    """
    from regard.data.layouts import refuse_more_parts
    from regard.measure.plan import plan
    from regard.run.beginning import refuse_another_recipe
    from regard.trainer import too_little_disk

    if not options.accept_changes:
        refuse_another_recipe(out, recipe)
    refuse_more_parts(options.micro_batches or 1, recipe.data)
    tell = note if processes.first and not quiet else (lambda message: None)
    made = plan(recipe, data, out, processes, options.micro_batches, options.shard, tell)
    if processes.first:
        typer.echo("\n".join(f"{name:15}{text}" for name, text in _lines(made, recipe).items()))
        if problem := too_little_disk(out, made.disk):
            note(problem)


def print_budgets(start: "Start", minutes: float, *, quiet: bool = False) -> None:
    """Print a table of the recipes that are chosen for `minutes` and for other training times.

    Each row of the table also has the perplexity that is expected with the recipe. No data is
    prepared. The setting --set training.minutes is ignored. Unless `quiet` is True, standard error
    shows how much of the text has been counted. Raises RegardError if the files, the tokenizer or
    the settings in `start` cannot be used.
    """
    from regard.budget.choice import for_several_times
    from regard.cli.preparing import preparing
    from regard.inputs import assigned
    from regard.recipe import assigned_field

    start.files.refuse_unfit(start.task)
    share = assigned(start.assignments, "data.share")
    with preparing(quiet, "pairs") as progress:
        text = start.files.measured(start.tokenizer, share, progress)
    row = "{:>10} {:>7} {:>8} {:>8} {:>10} {:>9} {:>11} {:>6} {:>9} {:>8} {:>11}"
    names = (
        "time layers d_model dropout smoothing cooldown vocabulary share steps epochs perplexity"
    )
    typer.echo(row.format(*names.split()))
    asked = (one for one in start.assignments if assigned_field(one) != "training.minutes")
    for found in for_several_times(text, minutes, tuple(asked)):
        model, recipe = found.recipe.model, found.recipe
        typer.echo(
            row.format(
                amount(60 * recipe.training.minutes, SECONDS),
                model.depth,
                model.d_model,
                model.dropout,
                recipe.training.label_smoothing,
                recipe.training.cooldown,
                f"{recipe.tokenizer.vocabulary:,}",
                f"{100 * recipe.data.share:.3g}%",
                f"{found.steps:,}",
                f"{found.epochs:.3g}",
                f"{found.perplexity:.3g}",
            )
        )


def announce(recipe: "Recipe", found: "Outline") -> None:
    """Write a note on a run's memory and disk, and a warning if warm-up takes the whole run."""
    note(f"memory {amount(sum(found.memory), BYTES)} and each batch's; disk {_disk(found.disk)}")
    training = recipe.training
    if training.warmup_steps >= training.steps:
        note(
            f"training.warmup_steps = {training.warmup_steps:,} of training.steps = "
            f"{training.steps:,}: the rate rises to the end and never falls"
        )


def _lines(plan: "Plan", recipe: "Recipe") -> dict[str, str]:
    """The texts of the plan; each key is the name that is printed before its text."""
    from regard.paper import BASE, BASE_TIME, BIG_TIME

    embedding, encoder, decoder = (amount(count, NUMBERS) for count in plan.parameters)
    rows, source, target = plan.part
    rules, accumulate = recipe.data, recipe.training.accumulate
    return {
        "parameters": f"{amount(sum(plan.parameters), NUMBERS)}: "
        f"embedding {embedding}, encoder {encoder}, decoder {decoder}",
        "memory": _memory(plan.memory, plan.dtype),
        "largest batch": f"{rows} x {source} source and {rows} x {target} target tokens took "
        f"{amount(plan.part_memory, BYTES)} more; {amount(plan.room, BYTES)} were free on "
        f"{plan.device}",
        "a step": f"{_tokens(rules, accumulate)} at most, by {_processes(plan.processes)}: "
        f"--micro-batches {plan.micro_batches}",
        "the paper's": f"{_tokens(BASE.data, BASE.training.accumulate)}: "
        f"--micro-batches {plan.paper_micro_batches} "
        f"--set training.accumulate={plan.paper_accumulate}",
        "time": f"{amount(plan.step_seconds, SECONDS)} a step, the median of {plan.timed}; "
        f"{amount(plan.seconds_left, SECONDS)} for the {plan.steps_left:,} steps that are left",
        "operations": f"{_power(plan.flop_per_step)} a step, {_power(plan.cost.counted_flop)} for "
        f"all {plan.steps:,}, counted",
        "as in Table 2": f"{_power(plan.cost.estimated_flop)} for all, estimated: "
        f"{amount(plan.cost.seconds, SECONDS)} x {_processes(plan.processes)} x "
        f"{_power(plan.cost.single_precision_flop_per_second)} a second, as measured in fp32 (the "
        f"paper: base {_power(BASE_TIME.flops)}, big {_power(BIG_TIME.flops)})",
        "disk": _disk(plan.disk),
    }


def _memory(memory: "Memory", dtype: str) -> str:
    parts = {
        f"weights in {dtype}": memory.weights,
        "weights in float32": memory.master,
        "gradient": memory.gradient,
        "moments": memory.moments,
    }
    texts = (f"{name} {amount(size, BYTES)}" for name, size in parts.items() if size)
    return f"{amount(sum(memory), BYTES)}: {', '.join(texts)}"


def _disk(disk: "Disk") -> str:
    return (
        f"{amount(disk.needed, BYTES)} for {count_of(disk.checkpoints, 'checkpoint')} of "
        f"{amount(disk.checkpoint, BYTES)} and the model; {amount(disk.free, BYTES)} are free"
    )


def _tokens(rules: "DataRecipe", batches: int) -> str:
    return f"{rules.source_tokens * batches:,} + {rules.target_tokens * batches:,} tokens"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"


def _power(value: float) -> str:
    return f"{value:.1e}".replace("e+", "e")
