"""Progress of preparing and of training: a bar on a terminal, plain lines elsewhere."""

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from regard.cli.console import console, note

if TYPE_CHECKING:
    from regard.data.aligned import Progress as Reading
    from regard.run.journal import Record

PLAIN_LINE_SECONDS = 10.0
"""Least time between two plain lines."""


class PreparationDisplay:
    """Shows each reading of the files. A context manager, which takes the bar down at its end."""

    NAMES = {"survey": "checking", "learn": "learning sub-words", "encode": "encoding"}  # noqa: RUF012

    def __init__(self, what: str):
        self._what = what
        self._plain = not console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description:18}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            disable=self._plain,
        )
        self._task = self._bar.add_task("", total=None, speed="")
        self._stage = ""
        self._began = self._shown = 0.0

    def __enter__(self) -> "PreparationDisplay":
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, reading: "Reading") -> None:
        """Show how far a reading is; the first one puts the bar up."""
        now, name = time.monotonic(), self.NAMES[reading.stage]
        if reading.stage != self._stage:
            self._bar.start()
            self._stage, self._began, self._shown = reading.stage, now, now
            self._bar.reset(self._task, description=name, total=reading.total)
        speed = f"{reading.pairs / max(now - self._began, 1e-3):,.0f} {self._what}/s"
        self._bar.update(self._task, completed=reading.done, speed=speed)
        last = 0 < reading.done == reading.total
        if self._plain and (last or now - self._shown > PLAIN_LINE_SECONDS):
            self._shown = now
            left = (now - self._began) * (reading.total / max(reading.done, 1) - 1)
            share = reading.done / max(reading.total, 1)
            note(f"{name}: {share:.0%}, {reading.pairs:,} {self._what}, {speed}, {left:.0f} s left")


class TrainingDisplay:
    """Shows the records of a journal. A context manager, which takes the bar down at its end."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.completed}/{task.total}"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)
        self._first: tuple[float, int] | None = None
        self._steps = 0
        self._shown_at = 0.0

    def __enter__(self) -> "TrainingDisplay":
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def __call__(self, record: "Record") -> None:
        """Show one record."""
        show = {"start": self._start, "step": self._step, "validation": self._validation}
        if record["event"] in show:
            show[record["event"]](record)

    def _start(self, record: "Record") -> None:
        self._steps = record["steps"]
        self._bar.update(self._task, total=self._steps, completed=record["step"])
        resumed = f"resuming after step {record['step']}; " if record["step"] else ""
        note(
            f"{resumed}{record['parameters'] / 1e6:.1f} M parameters, {record['pairs']:,} pairs, "
            f"{record['vocabulary']:,} symbols, {record['batches_per_epoch']} batches an epoch, "
            f"{record['dtype']} on {record['device']}, {record['threads']} threads"
        )

    def _step(self, record: "Record") -> None:
        now, step = time.monotonic(), record["step"]
        self._first = self._first or (now, step)
        text = (
            f"epoch {record['epoch']:.2f}  loss {record['loss']:.3f}  rate {record['rate']:.2e}  "
            f"{record['tokens_per_second']:,.0f} tokens/s"
        )
        self._bar.update(self._task, completed=step, description=text)
        last = step == self._steps
        if not console.is_terminal and (last or now - self._shown_at > PLAIN_LINE_SECONDS):
            self._shown_at = now
            note(f"step {step}/{self._steps}  {text}{self._time_left(now, step)}")

    def _time_left(self, now: float, step: int) -> str:
        assert self._first is not None
        since, first = self._first
        if step == first:
            return ""
        seconds = (now - since) / (step - first) * (self._steps - step)
        return f"  {timedelta(seconds=round(seconds))} left"

    def _validation(self, record: "Record") -> None:
        names = {"bleu": "BLEU", "f1": "F1"}
        scores = "".join(f"  {names[key]} {record[key]:.2f}" for key in names if key in record)
        perplexity = f"perplexity {record['perplexity']:.3f}"
        note(f"validation after step {record['step']}: {perplexity}{scores}")
        for sample in record.get("samples", []):
            for name in ("source", "output", "reference"):
                note(f"  {name:9} {sample[name]}")
