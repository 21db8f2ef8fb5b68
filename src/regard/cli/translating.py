"""Translates lines of text, and formats the translations for `regard translate`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.console import json_for_terminal, note
from regard.errors import MissingExtra

if TYPE_CHECKING:
    from regard.mending.mend import Mended
    from regard.text.passages import Passage
    from regard.translation import Translator


@dataclass
class SentenceLines:
    """Translates lines of one sentence each, and formats the translations as the options say."""

    translator: "Translator"
    input: Path
    n_best: int
    as_json: bool
    split: bool
    retry: bool
    align: bool
    window: int
    language: str = ""
    """The language whose rules cut lines into sentences; "" if lines are not cut."""
    warned: bool = False
    """Whether a warning about a line has been written."""
    read: int = 0
    """How many lines `translated` has read so far; lines that `measured` gets do not count."""
    flaws: Counter[str] = field(default_factory=Counter)
    """Three kinds of counts: "retried" counts sentences that had a second search, "wrong" counts
    outputs that still look wrong, and the name of a flaw counts outputs that have this flaw."""

    @property
    def _where(self) -> str:
        from regard.files.lines import shown_name

        return shown_name(self.input)

    def translated(self, lines: Iterable[str], first: int = 0) -> Iterator[str]:
        """Yield the text to write for each line; the first line has the index `first`, from 0.

        Raises the errors of `Translator.stream`.
        """
        lines = iter(lines)
        while some := list(islice(lines, self.window)):
            self.read += len(some)
            yield from self._texts(some, first)
            first += len(some)

    def _texts(self, some: list[str], first: int) -> Iterator[str]:
        for number, its in enumerate(self._sentences(some, count(first + 1)), first):
            yield self._shown(number, some[number - first], its)

    def _sentences(self, some: list[str], numbers: Iterable[int]) -> "Sequence[Mended]":
        """Translate sentences; errors and warnings name a sentence by its number in `numbers`."""
        from regard.mending.mend import Mended, mended

        found = self.translator.stream(
            some,
            n_best=self.n_best,
            split=self.split,
            window=self.window,
            where=self._where,
            numbers=numbers,
            warn=self._warn,
        )
        if not self.retry:
            return list(map(Mended, found))
        results = mended(self.translator, some, list(found))
        for its in results:
            self.flaws.update(["retried"] * its.retried + ["wrong"] * bool(its.flaws))
            self.flaws.update(its.flaws)
        return results

    def report(self, lines: int) -> None:
        """Write how many sentences had a second search, and how many outputs still look wrong.

        `lines` is the number of lines of the input. If some of these lines were translated earlier
        or by another process, the message begins with the number of lines that this process has
        translated. If both counts are 0, nothing is written.
        """
        of = "" if self.read == lines else f"of {self.read:,} lines translated by this start: "
        counted = dict(self.flaws)
        retried, wrong = counted.pop("retried", 0), counted.pop("wrong", 0)
        which = ", ".join(f"{count} {flaw}" for flaw, count in sorted(counted.items()))
        if retried or wrong:
            note(
                f"{of}{retried} sentence{' was' if retried == 1 else 's were'} searched for again; "
                f"{wrong} look{'s' * (wrong == 1)} wrong" + f": {which}" * bool(which)
            )

    def measured(self, lines: list[str], first: int) -> int:
        """Count the lines' source tokens; raises DataError for a line that cannot be translated."""
        return self._measured(lines, count(first + 1))

    def _measured(self, some: list[str], numbers: Iterable[int]) -> int:
        return self.translator.measure(
            some, split=self.split, where=self._where, numbers=numbers, warn=self._warn
        )

    def _warn(self, sentence: str) -> None:
        """Write the first warning as a note; later warnings are similar, and are not written."""
        if not self.warned:
            note(f"{sentence}, as other such lines are (--long refuse refuses them)")
            self.warned = True

    def settings(self, precision: str, exact: bool | None) -> dict[str, Any]:
        """All settings that the output depends on, except the model, the input and --longer."""
        return {
            **self.translator.recipe.model_dump(),
            "precision": precision,
            "exact": exact,
            "n-best": self.n_best,
            "json": self.as_json,
            "split": self.split,
            "retry": self.retry,
            "align": self.align,
            "window": self.window,
            "language": self.language,
        }

    def _shown(self, number: int, line: str, its: "Mended") -> str:
        best = its.translations
        alignment = self._alignment(line, best[0].text) if self.align else None
        if self.as_json:
            facts = _facts(its) | ({} if alignment is None else {"alignment": alignment})
            return json_for_terminal(facts)
        if self.n_best == 1:
            text = _on_one_line(best[0].text)
            return text if alignment is None else f"{text} ||| {alignment}"
        return "\n".join(f"{number} ||| {_on_one_line(t.text)} ||| {t.score:.6f}" for t in best)

    def _alignment(self, line: str, text: str) -> str:
        from regard.view.alignment import aligned, pharaoh

        of = self.translator
        return pharaoh(aligned(of.network, of.tokenizer, line, text, of.longest))


class ParagraphLines(SentenceLines):
    """Translates lines of any number of sentences; the text between sentences is kept.

    `translated` also raises MissingExtra if the extra `serve` is not installed.
    """

    def _texts(self, some: list[str], first: int) -> Iterator[str]:
        passages = [self._passage(line) for line in some]
        found = iter(self._sentences(*_numbered(passages, first)))
        for passage in passages:
            its = [next(found) for _ in passage.sentences]
            text = passage.joined([one.translations[0].text for one in its])
            each = zip(passage.sentences, its, strict=True)
            facts = {"text": text, "sentences": [{"source": s} | _facts(one) for s, one in each]}
            yield json_for_terminal(facts) if self.as_json else text

    def measured(self, lines: list[str], first: int) -> int:
        """Count as in the base class; also raises MissingExtra if the extra `serve` is missing."""
        return self._measured(*_numbered(map(self._passage, lines), first))

    def _passage(self, line: str) -> "Passage":
        """Cut a line into sentences; raises MissingExtra if the extra `serve` is not installed."""
        try:
            from regard.text.passages import read_passage
        except ModuleNotFoundError:
            raise MissingExtra("regard translate --paragraphs", "serve") from None
        return read_passage(line, self.language, self.translator.tokenizer)


def _numbered(passages: "Iterable[Passage]", first: int) -> tuple[list[str], list[int]]:
    """All sentences of some lines, and for each sentence the number of its line, from 1.

    The first line has the index `first`, which counts from 0.
    """
    both = [(s, number) for number, its in enumerate(passages, first + 1) for s in its.sentences]
    return [sentence for sentence, _ in both], [number for _, number in both]


def _facts(its: "Mended") -> dict[str, Any]:
    found = [{"text": t.text, "score": round(t.score, 6)} for t in its.translations]
    return {"translations": found, "flaws": its.flaws, "retried": its.retried}


def _on_one_line(text: str) -> str:
    # The vocabulary may allow a line end, although a trained model writes none.
    return text.replace("\n", " ").replace("\r", " ")
