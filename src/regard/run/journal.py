"""journal.jsonl: one line for each event of a run, such as a start, a logged step or a save.

Each line is a record, written as JSON. Listeners, such as the progress display and TensorBoard, are
called with each record, too.
"""

import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.errors import MissingExtra
from regard.files.whole import refusing_write_errors, sync, write_file

Record = dict[str, Any]
RecordListener = Callable[[Record], None]


class Journal:
    """Appends records to a file and passes them to listeners; a record has `event` and `time`."""

    def __init__(self, path: Path, listeners: tuple[RecordListener, ...] = ()):
        self.path, self._listeners = path, listeners

    def write(self, event: str, **fields: Any) -> None:
        """Append one record, then call the listeners; raises RegardError if it cannot be written.

        A number that is infinite or NaN, in a list or a dictionary too, becomes null in the file,
        because JSON has no such numbers.
        """
        record: Record = {"event": event, "time": round(time.time(), 3), **fields}
        with (
            refusing_write_errors(self.path),
            # A record may hold a path that is not UTF-8. "backslashreplace" writes its bad bytes as
            # escapes such as \udcff; json reads them back as the same path.
            self.path.open("a", encoding="utf-8", errors="backslashreplace") as file,
        ):
            file.write(json.dumps(_finite(record), ensure_ascii=False) + "\n")
        for listener in self._listeners:
            listener(record)

    def sync(self) -> None:
        """Write the records to the disk, where they survive a power cut.

        A run calls this before it saves a checkpoint, so that the steps of every checkpoint are in
        the journal. Raises RegardError if this fails.
        """
        with refusing_write_errors(self.path):
            sync(self.path)

    def rewind(self, step: int) -> None:
        """Remove damaged lines, and records of steps after `step`, which a resumed run repeats.

        Raises RegardError if the file cannot be written.
        """
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8", errors="replace")
        kept = "".join(f"{line}\n" for line in _whole_lines(text) if _step_of(line) <= step)
        if kept != text:
            write_file(self.path, kept)


class NoJournal(Journal):
    """The journal of a process that is not the first one of its run: it writes nothing."""

    def __init__(self) -> None:
        super().__init__(Path(os.devnull))

    def write(self, event: str, **fields: Any) -> None:
        """Write nothing."""


def read_journal(path: Path) -> list[Record]:
    """The records of a journal, oldest first, without the damaged lines that `rewind` would remove.

    The run may still be writing the journal. Raises OSError if the file cannot be read.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    return [json.loads(line) for line in _whole_lines(text) if _step_of(line) < math.inf]


def last_validation(path: Path) -> Record:
    """The record of the last validation in a journal; empty if there is none.

    Raises OSError if the file cannot be read.
    """
    validations = [record for record in read_journal(path) if record["event"] == "validation"]
    return validations[-1] if validations else {}


def tensorboard(directory: Path, warn: Callable[[str], None]) -> RecordListener:
    """A listener that writes TensorBoard events into `directory`.

    If an event cannot be written, `warn` is called with a sentence, and no more events are written.
    Raises MissingExtra if TensorBoard is not installed; the extra `board` of regard installs it.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MissingExtra("TensorBoard", "board") from None
    writer: SummaryWriter | None = None
    broken = False

    def write(record: Record) -> None:
        nonlocal writer
        if record["event"] == "start":
            # The run repeats the steps after record["step"]: remove them from the charts.
            writer = SummaryWriter(str(directory), purge_step=record["step"] + 1)
        if writer and "step" in record:
            for name, value in record.items():
                if isinstance(value, float) and name != "time":
                    writer.add_scalar(f"{record['event']}/{name}", value, record["step"])
            writer.flush()

    def listen(record: Record) -> None:
        nonlocal broken
        if broken:
            return
        try:
            write(record)
        except OSError as error:
            broken = True
            warn(f"{directory}: no more events are written: {error.strerror or error}")

    return listen


def _whole_lines(text: str) -> list[str]:
    """All lines that end in a newline; an unfinished line at the end is left out."""
    return text.split("\n")[:-1]


def _finite(value: Any) -> Any:
    """The value with None in place of every number that is infinite or NaN."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _step_of(line: str) -> float:
    try:
        record = json.loads(line)
        return float(record.get("step", 0)) if isinstance(record["event"], str) else math.inf
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
        return math.inf  # the line is not a record: after a power cut, it may hold anything
