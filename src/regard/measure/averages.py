"""Choose how many checkpoints are averaged (§6.1), by the loss on the validation set."""

import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from regard.encoder_decoder import EncoderDecoder
from regard.files.manifest import SEAL, read_manifest
from regard.files.whole import write_file
from regard.measure.validation import validator
from regard.run.averaging import average_weights
from regard.run.checkpoints import Checkpoint, to_average
from regard.run.journal import read_journal
from regard.run.model_directory import build, write_model
from regard.run.run import Run

FEWER = 2
"""Each average that is tried has this many checkpoints fewer than the average before it."""


class Average(NamedTuple):
    """An average of checkpoints, and its loss on the validation set in nats per sub-word."""

    checkpoints: int
    loss: float


def choose_average(run: Run, seconds: float = float("inf")) -> None:
    """Make the model of a finished run from fewer checkpoints, if this lowers its validation loss.

    At first, the model is the average of at most `training.average` checkpoints. Averages of fewer
    and fewer of these checkpoints are measured until the loss rises. Another average is tried only
    if its measurement is expected to end within `seconds` of the call. The first checkpoint that
    `to_average` returns is in every average. If the journal has the loss of this checkpoint alone,
    this loss is compared with the losses of the averages, too. All losses of a call are written
    into the journal. If an earlier call wrote losses for the same step of the run, these losses
    are used, and nothing is measured. If some of the checkpoints are gone or damaged, the model
    stays as it is. Raises Interrupted if a signal comes before the losses are written, and the
    errors of `to_average` and `validator`.
    """
    manifest = read_manifest(run.directory.path)
    step, most = manifest["step"], len(manifest["averaged"])
    found = to_average(run.directory.checkpoints, manifest.get("best", 0), most, lambda _: None)
    if most <= 1 or _steps(found) != sorted(manifest["averaged"]):  # some checkpoints may be gone
        return
    records = read_journal(run.journal.path)
    earlier = [r for r in records if r["event"] == "averaged" and r["step"] == step]
    if earlier:
        tried = [Average(**one) for one in earlier[-1]["tried"]]
    else:
        known = {r["step"]: r["loss"] for r in records if r["event"] == "validation"}
        tried = _try_averages(run, found, seconds, known.get(found[0].step))
        run.journal.write("averaged", step=step, tried=[one._asdict() for one in tried])
    best = min(tried, key=lambda one: one.loss)
    if best.checkpoints < most:
        _replace_model(run, manifest, found[: best.checkpoints])


def _try_averages(
    run: Run, found: Sequence[Checkpoint], seconds: float, alone: float | None
) -> list[Average]:
    """Measure the average of all checkpoints in `found`, then of fewer, until the loss rises.

    An average of n checkpoints is made from the first n in `found`. No further average is measured
    if the whole work would then take longer than `seconds`. `alone` is the loss of the first
    checkpoint; None if the journal does not have it. Returns the averages that were measured and,
    if `alone` is given, the first checkpoint as an average of one. Raises Interrupted if a signal
    has come, so that the caller does not write an incomplete list into the journal.
    """
    recipe, began = run.setup.recipe, time.monotonic()
    validate = validator(run.setup.data, recipe.but(validate_sentences=0, best="loss"))
    tried: list[Average] = []
    for count in range(len(found), 0 if alone is None else 1, -FEWER):
        loss = validate(_model(run, average_weights(found[:count])))["loss"]
        tried.append(Average(count, loss))
        run.leave_if_asked()
        spent = time.monotonic() - began
        if spent + spent / len(tried) > seconds or loss > min(one.loss for one in tried):
            break
    return tried if alone is None else [*tried, Average(1, alone)]


def _steps(some: Sequence[Checkpoint]) -> list[int]:
    return sorted(checkpoint.step for checkpoint in some)


def _model(run: Run, weights: dict[str, Tensor]) -> EncoderDecoder:
    setup = run.setup
    return build(setup.recipe, setup.tokenizer, weights, run.directory.path).to(setup.device)


def _replace_model(run: Run, manifest: dict[str, Any], chosen: Sequence[Checkpoint]) -> None:
    directory = run.directory.path
    steps = _steps(chosen)
    about = {key: value for key, value in manifest.items() if key not in SEAL}
    about |= {"averaged": steps}
    write_model(directory, run.setup.recipe, run.setup.tokenizer, average_weights(chosen), about)
    result = json.loads((directory / "result.json").read_text()) | {"averaged": steps}
    write_file(directory / "result.json", json.dumps(result, indent=1) + "\n")
