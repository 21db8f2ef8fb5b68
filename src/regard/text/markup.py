"""Divide HTML into stretches of text and of markup; no character is changed."""

import html
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import accumulate, pairwise

KEPT_INSIDE = frozenset(
    ["code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea", "var"]
)
"""Elements whose text is not to be translated."""
VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
     "track", "wbr"]
)  # fmt: skip
"""Elements that have no content and no end tag."""
ENDED_BY = {
    name: frozenset(following.split())
    for names, following in {
        "li": "li",
        "dt dd": "dt dd",
        "rt rp": "rt rp",
        "option": "option optgroup hr",
        "optgroup": "optgroup hr",
        "caption": "col colgroup tbody td tfoot th thead tr",
        "tbody tfoot thead": "tbody tfoot thead",
        "tr": "tbody tfoot thead tr",
        "td th": "tbody td tfoot th thead tr",
        "p": "address article aside blockquote dd details dialog div dl dt fieldset figcaption "
        "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav ol p pre search "
        "section table tbody td tfoot th thead tr ul",
    }.items()
    for name in names.split()
}
"""Elements that need no end tag. Each is mapped to the elements whose start tags also end it."""
_HUGE = re.compile("&#[0-9]{1000,};?")
"""Decimal character references of 1,000 digits or more. They are replaced before parsing, because
Python refuses to read numbers of more than 4,300 digits."""
_ZEROS = re.compile("&#0+(?=[0-9])")
_COMMENT_ENDS = re.compile("-->|(?<!<!)--!>")
HOLDERS = frozenset(["datalist", "dl", "menu", "ol", "ruby", "select", "table", "ul"])
"""A start tag inside one of these elements ends no element outside: for example, an <li> inside a
<ul> does not end an <li> around the <ul>."""


def stretches(markup: str) -> Iterator[tuple[str, bool]]:
    """Divide HTML into stretches; yield each stretch, and whether it is text to translate.

    Together, the stretches are exactly `markup`, even if `markup` is not valid HTML.
    """
    tail = markup.rfind(">") + 1  # after this index, no tag is complete, and parsing is slow
    reader = _Reader(_HUGE.sub(lambda found: "_" * len(found[0]), markup[:tail]))
    reader.begin(tail, is_text=not reader.keeping)
    if (comment := markup.find("<!--", tail)) >= 0:
        reader.begin(comment, is_text=False)
    for (start, is_text), (end, _) in pairwise([*reader.starts, (len(markup), False)]):
        if start < end:
            yield markup[start:end], is_text


def read_references(text: str) -> str:
    """Replace references such as &amp; by their characters; `text` is HTML without tags."""
    return html.unescape(_HUGE.sub("\ufffd", _ZEROS.sub("&#", text)))


def _is_kept(tag: str, attributes: dict[str, str | None]) -> bool:
    """Whether the content of an element with this start tag is not to be translated."""
    untranslated = (attributes.get("translate") or "").lower() == "no"
    classes = (attributes.get("class") or "").split()
    return tag in KEPT_INSIDE or untranslated or "notranslate" in classes


class _Reader(HTMLParser):
    """Records in `starts` where each stretch begins, and whether it is text to translate."""

    keeping: str | None = None
    """The name of the outermost open element whose content is not translated; "!--" inside a
    comment without an end; otherwise None."""

    def __init__(self, markup: str):
        super().__init__(convert_charrefs=False)
        lines = markup.split("\n")
        self._lines = [0, *accumulate(len(line) + 1 for line in lines)]
        # Open elements, counted by name: `_inside` counts `keeping` and the elements inside it,
        # `_around` counts the elements around it.
        self._inside = Counter[str]()
        self._around = Counter[str]()
        self.starts = [(0, False)]
        self.feed(markup)
        self.close()

    def begin(self, place: int, *, is_text: bool) -> None:
        """Begin a stretch at this place, unless the last stretch has the same `is_text`."""
        if is_text is not self.starts[-1][1]:
            self.starts.append((place, is_text))

    def _note(self, *, is_text: bool) -> None:
        line, column = self.getpos()
        self.begin(self._lines[line - 1] + column, is_text=is_text)

    def parse_comment(self, i: int, report: bool = True) -> int:
        """Read a comment; a comment without an end goes on to the end of the markup.

        Like browsers, read `<!-->` as a whole comment, and `--!>` as the end of one. The base class
        of older Python versions, such as 3.11.7, does not.
        """
        found = _COMMENT_ENDS.search(self.rawdata, i + 2)
        self._note(is_text=False)
        if found is None:
            self.keeping = self.keeping or "!--"
            return len(self.rawdata)
        return found.end()

    def parse_html_declaration(self, i: int) -> int:
        """Read markup that begins with `<!`; like browsers, read `<![if x]>` as a comment.

        All markup that begins with `<![` is read as a comment, except `<![CDATA[`. If a word that
        the base class does not know follows `<![`, the base class would raise AssertionError.
        """
        if self.rawdata.startswith("<![", i) and not self.rawdata.startswith("<![CDATA[", i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(is_text=False)
        self._end_before(tag)
        if tag in VOID:
            return
        if self.keeping is None and _is_kept(tag, dict(attrs)):
            self.keeping = tag
        (self._inside if self.keeping else self._around)[tag] += 1

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(is_text=False)
        self._end_before(tag)

    def handle_endtag(self, tag: str) -> None:
        self._note(is_text=False)
        if self._inside[tag]:
            self._inside[tag] -= 1
            if tag == self.keeping and not self._inside[tag]:
                self._end()
        elif self._around[tag]:
            self._around[tag] -= 1
            if self.keeping in ENDED_BY:
                self._end()

    def _end_before(self, tag: str) -> None:
        """End the element `keeping` if this start tag ends it, as a second <li> ends the first."""
        if tag in ENDED_BY.get(self.keeping or "", ()) and not any(map(self._inside.get, HOLDERS)):
            self._end()

    def _end(self) -> None:
        self.keeping = None
        self._inside.clear()

    def handle_data(self, data: str) -> None:
        self._note(is_text=not self.keeping)

    def handle_entityref(self, name: str) -> None:
        self.handle_data(name)

    def handle_comment(self, data: str) -> None:
        self._note(is_text=False)

    def handle_decl(self, decl: str) -> None:
        self.handle_comment(decl)

    handle_charref = handle_entityref
    handle_pi = unknown_decl = handle_comment
