"""Progress of long commands: a bar on a terminal, plain lines elsewhere."""

import math
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Self

from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from regard.amounts import SECONDS, amount, count_of
from regard.cli.console import console, note

if TYPE_CHECKING:
    from regard.cli.bulk import Measure
    from regard.data.aligned import Progress as Reading
    from regard.files.blocks import Blocks
    from regard.run.journal import Record

PLAIN_LINE_SECONDS = 10.0
"""Plain lines of progress are at least this many seconds apart, except for lines that must be
written at once."""
NOTABLE = 0.05
"""The user is told if more than this fraction of the run's time was left when the cooldown ended.
The user is also told if the time was over first, and the factor by which the cooldown multiplies
the learning rate was still greater than this."""


class _Display:
    """A context manager that shows a bar on a terminal, and plain lines elsewhere."""

    def __init__(self, *columns: str | ProgressColumn):
        self._plain = not console().is_terminal
        # With redirect_stderr=True, rich would write to the original stream of sys.stderr, where a
        # failed write is an error. The file of `console` discards text after a failed write.
        self._bar = Progress(
            *columns, console=console(), disable=self._plain, redirect_stderr=False
        )
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def _note(self, text: str, *, at_once: bool) -> None:
        """Write a plain line if there is no bar.

        The line is left out if the last one is less than PLAIN_LINE_SECONDS old, unless `at_once`
        is True.
        """
        now = time.monotonic()
        if self._plain and (at_once or now - self._shown_at > PLAIN_LINE_SECONDS):
            self._shown_at = now
            note(text)


class PreparationDisplay(_Display):
    """Shows how much of the files has been read; `what` names their content: "pairs" or "trees"."""

    NAMES = {  # noqa: RUF012
        "count": "counting",
        "draw": "drawing pairs",
        "survey": "checking",
        "learn": "learning sub-words",
        "phrases": "collecting phrases",
        "encode": "encoding",
    }

    def __init__(self, what: str):
        super().__init__(
            TextColumn("{task.description:18}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
        )
        self._what = what
        self._task = self._bar.add_task("", total=None, speed="")
        self._stage, self._began = "", 0.0

    def __enter__(self) -> Self:
        return self  # the bar starts later, when this object is first called

    def __call__(self, reading: "Reading") -> None:
        """Show how much of a corpus has been read; a stage may read several corpora one by one."""
        now, name = time.monotonic(), self.NAMES[reading.stage]
        if reading.stage != self._stage or not reading.pairs:
            self._bar.start()
            self._stage, self._began, self._shown_at = reading.stage, now, now
            self._bar.reset(self._task, description=name, total=reading.total)
        speed = f"{reading.pairs / max(now - self._began, 1e-3):,.0f} {self._what}/s"
        self._bar.update(self._task, completed=reading.done, speed=speed)
        left = (now - self._began) * (reading.total / max(reading.done, 1) - 1)
        share = reading.done / max(reading.total, 1)
        self._note(
            f"{name}: {share:.0%}, {count_of(reading.pairs, self._what[:-1])}, {speed}, "
            f"{left:.0f} s left",
            at_once=0 < reading.done == reading.total,
        )


class TrainingDisplay(_Display):
    """Shows the progress of training; it is called with each record of the run's journal."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.fields[place]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
        )
        self._task = self._bar.add_task("starting", total=None, place="")
        self._first: tuple[float, int] | None = None
        self._steps, self._seconds = 0, 0.0

    def __call__(self, record: "Record") -> None:
        """Show a record of the journal, if `show` has its event; ignore all other records."""
        show = {
            "start": self._start,
            "step": self._step,
            "cooldown": self._cooldown,
            "over": self._over,
            "validation": self._validation,
            "averaged": self._averaged,
            "tuned": self._tuned,
        }
        if record["event"] in show:
            show[record["event"]](record)

    def _start(self, record: "Record") -> None:
        self._steps, self._seconds = record["steps"], 60 * record["minutes"]
        self._bar.update(self._task, total=1, completed=0)
        resumed = f"resuming after step {record['step']}; " if record["step"] else ""
        note(
            f"{resumed}{record['parameters'] / 1e6:.1f} M parameters, "
            f"{count_of(record['pairs'], 'pair')}, {record['vocabulary']:,} symbols, "
            f"{count_of(record['batches_per_epoch'], 'step')} an epoch, "
            f"{record['dtype']} on {record['device']}, {count_of(record['threads'], 'thread')}"
        )

    def _step(self, record: "Record") -> None:
        now, step = time.monotonic(), record["step"]
        self._first = self._first or (now, step)
        text = (
            f"epoch {record['epoch']:.2f}  loss {record['loss']:.3f}  rate {record['rate']:.2e}  "
            f"{record['tokens_per_second']:,.0f} tokens/s"
        )
        by_time = record["seconds"] / self._seconds if self._seconds else 0.0
        by_steps = step / self._steps
        place = f"{step}" if by_time > by_steps else f"{step}/{self._steps}"
        self._bar.update(
            self._task, completed=max(by_time, by_steps), description=text, place=place
        )
        since, first = self._first
        left = [max(0.0, self._seconds - record["seconds"])] if self._seconds else []
        if step != first:
            left.append((now - since) / (step - first) * (self._steps - step))
        ends = f"  {timedelta(seconds=round(min(left)))} left" if left else ""
        self._note(f"step {place}  {text}{ends}", at_once=step == self._steps)

    def _cooldown(self, record: "Record") -> None:
        steps = f"from step {record['step'] + 1} to {record['ends']}"
        note(f"{steps}, the learning rate also falls to 0 in a straight line")

    def _over(self, record: "Record") -> None:
        factor, left = record["factor"], record["left"]
        if factor > NOTABLE:
            note(
                "the time is over before the end of the cooldown, since steps took longer than "
                f"before: the learning rate has fallen to {factor:.0%}, not to 0"
            )
        elif left > NOTABLE * self._seconds:
            note(
                f"the cooldown is over {amount(left, SECONDS)} before the time, since steps took "
                "less time than before"
            )

    def _validation(self, record: "Record") -> None:
        words = record.get("bleu_tokenizer", "13a")
        names = {"bleu": "BLEU" if words == "13a" else f"BLEU ({words})", "f1": "F1"}
        scores = "".join(f"  {names[key]} {record[key]:.2f}" for key in names if key in record)
        perplexity = f"perplexity {record['perplexity']:.3f}"
        if "accuracy" in record:
            perplexity += f"  accuracy {record['accuracy']:.1f} %"
        note(f"validation after step {record['step']}: {perplexity}{scores}")
        for sample in record.get("samples", []):
            for name in ("source", "output", "reference"):
                note(f"  {name:9} {sample[name]}")

    def _averaged(self, record: "Record") -> None:
        tried = sorted(record["tried"], key=lambda one: one["loss"])
        best, count = tried[0]["checkpoints"], len(tried)
        chosen = "one checkpoint is taken" if best == 1 else f"{best} checkpoints are averaged"
        note(
            f"{chosen}, the best of {count} numbers tried on the validation set: perplexity "
            f"{math.exp(tried[0]['loss']):.3f}"
        )

    def _tuned(self, record: "Record") -> None:
        best, count = record["tried"][0], len(record["tried"])
        note(
            f"beam {best['beam']} and alpha {best['alpha']} are chosen from {count} settings tried "
            f"on {record['sentences']:,} sentences of the validation set: BLEU {best['bleu']:.2f}"
        )


class BulkDisplay(_Display):
    """Shows how many lines of a file all processes together have translated."""

    def __init__(self, blocks: "Blocks"):
        # The name of the file may have square brackets, which are no markup here.
        text = TextColumn("{task.description}", markup=False)
        super().__init__(BarColumn(bar_width=24), text)
        self._blocks = blocks
        self._task = self._bar.add_task("checking", total=None)
        self._shown_at = time.monotonic()
        self._first: tuple[float, int, int] | None = None

    def checking(self, measure: "Measure") -> "Measure":
        """A function that calls `measure`, but first shows how many lines have been checked."""

        def shown(lines: list[str], first: int) -> int:
            self._show(f"checking {self._blocks.source}: {first:,} lines", at_once=False)
            return measure(lines, first)

        return shown

    def __call__(self, missing: set[int]) -> None:
        """Show how much is translated; `missing` has the indices of the untranslated blocks."""
        now, blocks = time.monotonic(), self._blocks
        lines, tokens = blocks.lines_of(missing), sum(blocks.tokens[n] for n in missing)
        begins = self._first is None
        self._first = self._first or (now, lines, tokens)
        began, lines_then, tokens_then = self._first
        text = f"{blocks.lines - lines:,} of {blocks.lines:,} lines"
        if tokens < tokens_then:
            seconds = now - began
            left = timedelta(seconds=round(seconds * tokens / (tokens_then - tokens)))
            text += (
                f"  {(lines_then - lines) / seconds:,.1f} lines/s  "
                f"{(tokens_then - tokens) / seconds:,.0f} source tokens/s  {left} left"
            )
        self._bar.update(self._task, total=blocks.lines, completed=blocks.lines - lines)
        self._show(text, at_once=begins or not missing)

    def _show(self, text: str, *, at_once: bool) -> None:
        self._bar.update(self._task, description=text)
        self._note(text, at_once=at_once)
