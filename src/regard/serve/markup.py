"""HTML as runs of text and of markup, character for character."""

from collections.abc import Iterator
from enum import Enum, auto
from html.parser import HTMLParser
from itertools import accumulate

KEPT_INSIDE = frozenset(
    ["code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea", "var"]
)
"""Elements whose text is no prose."""
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"]
)
"""Elements that never end, for they hold nothing."""


class Run(Enum):
    """What a stretch of HTML is."""

    TEXT = auto()
    KEPT = auto()


def runs(markup: str) -> Iterator[tuple[str, Run]]:
    """The stretches of an HTML text in order; together they are the text, whatever it is."""
    tail = markup.rfind(">") + 1  # no tag begins there, and to look for one in vain takes long
    reader = _Reader(markup[:tail])
    starts = [(0, Run.KEPT), *reader.starts]
    starts += [(tail, Run.KEPT if reader.keeping else Run.TEXT), (len(markup), Run.KEPT)]
    for (start, kind), (end, _) in _merged(starts):
        if start < end:
            yield markup[start:end], kind


def _merged(
    starts: list[tuple[int, Run]],
) -> Iterator[tuple[tuple[int, Run], tuple[int, Run]]]:
    """Each stretch with the one after it; neighbours of one kind are one."""
    first = starts[0]
    for following in starts[1:-1]:
        if following[1] is not first[1]:
            yield first, following
            first = following
    yield first, starts[-1]


class _Reader(HTMLParser):
    """Notes where text and markup begin, and alters nothing."""

    keeping: str | None = None
    """The element that is open and whose inside is kept."""

    def __init__(self, markup: str):
        super().__init__(convert_charrefs=False)
        lines = markup.split("\n")
        self._lines = [0, *accumulate(len(line) + 1 for line in lines)]
        self._depth = 0  # elements of this name that are open in it, itself included
        self.starts: list[tuple[int, Run]] = []
        self.feed(markup)
        self.close()

    def _note(self, kind: Run) -> None:
        line, column = self.getpos()
        self.starts.append((self._lines[line - 1] + column, kind))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(Run.KEPT)
        if tag in VOID:
            return
        if self.keeping is None:
            given = dict(attrs)
            untranslated = given.get("translate") == "no"
            classes = (given.get("class") or "").split()
            if tag in KEPT_INSIDE or untranslated or "notranslate" in classes:
                self.keeping, self._depth = tag, 1
        elif tag == self.keeping:
            self._depth += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(Run.KEPT)

    def handle_endtag(self, tag: str) -> None:
        self._note(Run.KEPT)
        if tag == self.keeping:
            self._depth -= 1
            if not self._depth:
                self.keeping = None

    def handle_data(self, data: str) -> None:
        self._note(Run.KEPT if self.keeping else Run.TEXT)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(name)

    def handle_charref(self, name: str) -> None:
        self.handle_data(name)

    def handle_comment(self, data: str) -> None:
        self._note(Run.KEPT)

    def handle_decl(self, decl: str) -> None:
        self._note(Run.KEPT)

    def handle_pi(self, data: str) -> None:
        self._note(Run.KEPT)

    def unknown_decl(self, data: str) -> None:
        self._note(Run.KEPT)
