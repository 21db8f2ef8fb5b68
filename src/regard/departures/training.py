"""§5.2 to §5.4, and the averaging of §6.1: departures from the paper in training."""

from regard.departures.case import (
    NO_DEPARTURE,
    Compared,
    Departure,
    Finding,
    Judge,
    as_row,
    is_parser,
    unstated,
    unstated_for_parsers,
    values,
)
from regard.paper import BASE_TIME, BIG_TIME, TABLE_3

_ENDS = ("training.steps", "training.minutes", "training.patience")
_AVERAGE = ("training.average", "training.best")
_SAVES = ("training.save_every", "training.save_minutes", "training.resume_minutes")
_CHECKPOINTS_APART = 600
"""Seconds between two of the paper's checkpoints."""
_NEAR = 0.1
"""The number of steps between checkpoints departs from the paper's number if the two differ by more
than this fraction. The paper's number is ten minutes divided by the time of a step, and the paper
prints a rounded time.
"""


def _steps(case: Compared) -> Finding | None:
    printed, made = case.printed.training.steps, case.facts.steps
    if made is not None and made != printed:
        return Finding("departs", f"{printed:,} steps", f"{made:,} steps were made")
    return as_row(*_ENDS).finding(case)


def _hardware(case: Compared) -> Finding | None:
    return None if case.facts.device is None else Finding("departs", here=case.facts.device)


def _precision(case: Compared) -> Finding | None:
    chosen, used = case.recipe.training.precision, case.facts.dtype
    if (used or chosen) in ("float32", "fp32"):
        return None
    if used:
        return Finding("departs", "float32", used)
    how = ", which is bf16 where the processor has it" if chosen == "auto" else ""
    here = values(case.recipe, ("training.precision",))
    return Finding("departs", 'training.precision = "fp32"', here + how)


def _optimizer(case: Compared) -> Finding | None:
    """Judge the optimizer and, if it is Muon, its weight decay."""
    by_muon = case.recipe.training.optimizer == "muon"
    return as_row("training.optimizer", *["training.weight_decay"] * by_muon).finding(case)


def _averages_nothing(row: str) -> bool:
    """Whether the paper prints for a row only figures of a single checkpoint, and none of a mean.

    Table 3 has figures of single checkpoints. Base and big are also in Table 2, which has figures
    of averaged checkpoints.
    """
    return row in TABLE_3 and row not in ("base", "big")


def _average(case: Compared) -> Finding | None:
    """Judge how many checkpoints are averaged, and whether the recipe asks for the last ones.

    Other functions judge which steps were averaged: `_steps` judges the last step, and `_spacing`
    the number of steps between the averaged checkpoints.
    """
    wanted = 1 if _averages_nothing(case.row) else case.printed.training.average
    averaged, training = case.facts.averaged, case.recipe.training
    paper = f"the last {wanted} checkpoints are averaged" if wanted > 1 else "none are averaged"
    if averaged is not None and len(averaged) != wanted:
        steps = ", ".join(f"{step:,}" for step in averaged)
        return Finding("departs", paper, f"the mean of {len(averaged)}: steps {steps}")
    if (averaged is None and training.average != wanted) or training.best != "last":
        changed = [f for f in _AVERAGE if f != "training.best" or training.best != "last"]
        return Finding("departs", paper, values(case.recipe, changed))
    return None


def _spacing(case: Compared) -> Finding | None:
    """Judge the number of steps between checkpoints.

    The paper wrote a checkpoint every ten minutes. Another machine makes another number of steps in
    this time.
    """
    if is_parser(case):
        return unstated(*_SAVES).finding(case)
    time = BIG_TIME if case.row.startswith("big") else BASE_TIME
    wanted = round(_CHECKPOINTS_APART / time.seconds_per_step)
    paper = f"every ten minutes, which were about {wanted:,} steps"
    averaged = case.facts.averaged
    if averaged and len(averaged) > 1:
        apart = (averaged[-1] - averaged[0]) / (len(averaged) - 1)
        if abs(apart - wanted) > _NEAR * wanted:
            return Finding("departs", paper, f"the averaged ones are {apart:,.6g} steps apart")
        return None
    if case.changed(*_SAVES):
        return Finding("departs", paper, values(case.recipe, _SAVES))
    if case.recipe.training.save_minutes:
        here = f"{values(case.recipe, _SAVES)}: as many steps as the machine makes in that time"
        return Finding("unseen", paper, here)
    return None


def _first_weights(case: Compared) -> Finding | None:
    """Judge whether a run's first weights were random, and not taken from a model or the text."""
    if case.facts.begins_with_model:
        return Finding("departs")
    return as_row("training.first_embedding").finding(case)


TRAINING = (
    Departure(
        name="duration",
        section="§5.2",
        quote="We trained the base models for a total of 100,000 steps or 12 hours.",
        theirs="the same",
        ours="the same number of steps; `--time` and `training.patience` may end a run earlier",
        why="few machines make 100,000 steps in a time that a user can wait",
        tests=("tests/test_training_resumed.py", "tests/run/test_clock.py"),
        judge=Judge(_steps, _ENDS),
    ),
    Departure(
        name="hardware",
        section="§5.2",
        quote="one machine with 8 NVIDIA P100 GPUs",
        theirs="the same",
        ours="any processor; it changes the weights by rounding only, but times and costs cannot "
        "be compared",
        why="such machines are rare by now",
        tests=("tests/machine/test_devices.py",),
        judge=Judge(_hardware),
    ),
    Departure(
        name="precision",
        section="§6.1",
        quote="sustained single-precision floating-point capacity",
        theirs="fp32",
        ours="bf16 where the processor has it, with a master copy of the weights in fp32; "
        '`training.precision = "fp32"` computes everything in fp32, and `"int8"` rounds the '
        "factors of most products to 8 bits",
        why="bf16 is faster; at a usual learning rate all three reach the same BLEU within about "
        "0.3 ([measured on Multi30k](../experiments/parity/README.md))",
        tests=(
            "tests/machine/test_devices.py",
            "tests/test_training_resumed.py",
            "tests/arithmetic/test_int8.py",
        ),
        judge=Judge(_precision, ("training.precision",)),
    ),
    Departure(
        name="learning rate",
        section="§5.3, §6.3",
        quote="We used warmup_steps = 4000.",
        theirs="the same; later, twice the rate and a warm-up of 8,000 steps; for parsing, half "
        "the rate (in an early file, five times the rate) and, for WSJ, a warm-up of 16,000 steps",
        ours="equation (3), with steps counted from 1; for the parsers, the warm-up is 16,000 "
        "steps (`wsj`) and 4,000 steps (`wsj-semi`)",
        why="the paper tuned the parsers' rate and does not print it",
        tests=("tests/test_schedule.py", "tests/test_paper.py"),
        judge=unstated_for_parsers("training.rate", "training.warmup_steps"),
    ),
    Departure(
        name="cooldown",
        section="§5.3",
        quote="decreasing it thereafter proportionally to the inverse square root of the step "
        "number",
        theirs="the same",
        ours="the same; where `regard train --time` expects at most 12 passes over a text, a "
        "factor that falls to 0 (`training.cooldown`) also multiplies the rate in the last third",
        why="the translations are better (experiments/budget)",
        tests=("tests/test_schedule.py", "tests/run/test_cooldown.py"),
        judge=as_row("training.cooldown"),
    ),
    Departure(
        name="Adam",
        section="§5.3",
        quote="the Adam optimizer [20] with β1 = 0.9, β2 = 0.98 and ε = 10^−9",
        theirs="the same; later beta2 0.997",
        ours="as published; gradients are never clipped",
        why="as published",
        tests=("tests/test_optimizer.py",),
        judge=as_row("training.beta1", "training.beta2", "training.epsilon"),
    ),
    Departure(
        name="optimizer",
        section="§5.3",
        quote="We used the Adam optimizer",
        theirs="Adam",
        ours="Adam; with `training.optimizer = muon`, the matrices inside the layers learn by "
        "Muon, with `training.weight_decay`, and only the other parameters by Adam",
        why="Muon learns from fewer steps (experiments/budget); the three smallest models of "
        "`regard train --time` use it, and the paper's recipes do not",
        tests=("tests/test_muon.py", "tests/test_optimizer.py"),
        judge=Judge(_optimizer, ("training.optimizer", "training.weight_decay")),
    ),
    Departure(
        name="label smoothing",
        section="§5.4, Table 3",
        quote="label smoothing of value ε_ls = 0.1",
        theirs="the same",
        ours="the same, or as a row of Table 3 says; `regard train --time` takes 0.3 where a text "
        "is read more than 12 times",
        why="translations of a text that is read often are better with 0.3",
        tests=("tests/test_paper.py", "tests/test_loss.py"),
        judge=as_row("training.label_smoothing"),
    ),
    Departure(
        name="where the smoothed probability goes",
        section="§5.4",
        quote="label smoothing [...] [36]",
        theirs="epsilon/(V − 1) on each wrong entry",
        ours="epsilon/V on every entry, including the right one",
        why="this is the definition in the cited work; perplexity is computed without smoothing, "
        "per sub-word",
        tests=("tests/test_loss.py",),
        judge=NO_DEPARTURE,
    ),
    Departure(
        name="agreement of two passes",
        section="§5.4",
        quote="We employ three types of regularization during training",
        theirs="none",
        ours="none; `training.consistency` trains two passes with different dropout to agree "
        "(R-Drop)",
        why="it is reported to help with small texts; it is off, because no gain was measured here",
        tests=("tests/test_steps.py", "tests/test_loss.py"),
        judge=as_row("training.consistency"),
    ),
    Departure(
        name="loss of several batches",
        section="§5",
        theirs="the sum of the losses on all devices, divided by the number of tokens on all "
        "devices",
        ours="the sum of all losses divided by the number of all tokens, however batches are "
        "divided",
        why="a mean of the devices' means would depend on the number of devices",
        tests=("tests/test_training.py",),
        judge=unstated(),
    ),
    Departure(
        name="random numbers",
        section="§5",
        theirs="the seeds of the published models are not known",
        ours="`training.seed`",
        why="a run can be repeated",
        tests=("tests/test_training_resumed.py",),
        judge=Judge(
            lambda case: Finding("unstated", here=values(case.recipe, ("training.seed",))),
            ("training.seed",),
        ),
    ),
    Departure(
        name="averaging",
        section="§6.1, §6.2",
        quote="averaging the last 5 checkpoints",
        theirs="a separate tool",
        ours="the last 5 (base) or 20 (big) checkpoints are averaged at the end of training. The "
        "recipes of Table 3 inherit this from base, whereas the paper averages nothing there",
        why="a row of Table 3 is base with one change; the printed figure can be compared with "
        "the last checkpoint of a row, not with the average",
        tests=("tests/run/test_averaging.py",),
        judge=Judge(_average, _AVERAGE),
    ),
    Departure(
        name="spacing of checkpoints",
        section="§6.1",
        quote="which were written at 10-minute intervals",
        theirs="written by the clock",
        ours="the paper's recipes save every 1,500 (base) and 600 steps (big), which took the "
        "authors ten minutes, and average these; `training.save_minutes` saves by the clock",
        why="on another machine, ten minutes are another number of steps, and the average is "
        "another",
        tests=("tests/run/test_clock.py", "tests/run/test_averaging.py"),
        judge=Judge(_spacing, _SAVES),
    ),
    Departure(
        name="first weights",
        section="§5",
        theirs="drawn at random",
        ours="drawn at random; `--from` begins with the weights of a model, and "
        "`training.first_embedding = pairs` with an embedding in which a word and its translation "
        "are near",
        why="a model for a special field may begin with the weights of a general model; with such "
        "an embedding, perplexity falls faster at first (experiments/budget), and `regard train "
        "--time` takes it for its three smallest models",
        tests=("tests/run/test_finetuning.py", "tests/run/test_first_embedding.py"),
        judge=Judge(_first_weights, ("training.first_embedding",)),
    ),
)
