"""Decide whether matching a regular expression ends soon; anybody may have written the expression.

The tokenizers library matches by backtracking, which may try every way to divide a text among the
parts of an expression, and so run for ever. An expression in KNOWN is accepted. Any other is
accepted if four conditions hold:

- The expression has at most _LONGEST characters.
- It has only syntax that `_Scanner` reads.
- Each alternative has at most one part that repeats without an upper bound. This part is a single
  character or class.
- The expression has at most MOST_WAYS choices, which are ways to match at one position.

An optional character, for example, has two choices. A part that repeats without an upper bound
counts as one choice. The choices of successive parts are multiplied, and the choices of
alternatives are added. Matching a text of n characters then takes at most about MOST_WAYS x n²
steps.
"""

from typing import NamedTuple

MOST_WAYS = 64
"""An expression is refused if it has more choices than this, for example more alternatives."""
KNOWN = frozenset(
    [
        # Of GPT-4 (cl100k) and Llama 3, which share one; Qwen 2; GPT-4o (o200k); DeepSeek-V3.
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
        r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ]
)
"""Accepted expressions of published tokenizers. In each of them, two parts hardly ever match the
same text, so backtracking ends soon."""
_LONGEST = 1000


class _Ways(NamedTuple):
    """In how many ways a part of an expression can match at one position of a text."""

    choices: int
    endless: int
    """How many parts repeat without an upper bound, in the alternative with the most such parts."""


class _Unsafe(Exception):
    """The expression has a part that this module does not accept."""


def surely_ends(expression: str) -> bool:
    """Whether the rules of this module accept the expression, so that matching it surely ends."""
    if expression in KNOWN:
        return True
    if len(expression) > _LONGEST:
        return False
    scanner = _Scanner(expression)
    try:
        ways = scanner.alternatives()
    except (_Unsafe, RecursionError):  # RecursionError: the groups are nested too deep
        return False
    return scanner.at_end and ways.choices <= MOST_WAYS and ways.endless <= 1


class _Scanner:
    """Reads the syntax that tokenizers use, a part of Oniguruma's; raises _Unsafe for the rest.

    Oniguruma is the library by which the tokenizers library matches regular expressions.
    """

    def __init__(self, expression: str):
        self._rest = expression

    @property
    def at_end(self) -> bool:
        return not self._rest

    def alternatives(self) -> _Ways:
        """Read alternatives up to the end or a closing parenthesis; return their ways to match.

        The choices of the alternatives are added.
        """
        found = [self._sequence()]
        while self._take("|"):
            found.append(self._sequence())
        return _Ways(sum(w.choices for w in found), max(w.endless for w in found))

    def _sequence(self) -> _Ways:
        count, endless = 1, 0
        while self._rest and self._rest[0] not in "|)":
            ways = self._repeated()
            count, endless = count * ways.choices, endless + ways.endless
            if count > MOST_WAYS:
                raise _Unsafe
        return _Ways(count, endless)

    def _repeated(self) -> _Ways:
        is_group = self._rest[0] == "("
        ways = self._group() if is_group else self._character()
        if self._take("{"):
            ways = self._interval(ways, is_group)
        elif self._take("?"):
            ways = _Ways(ways.choices + 1, ways.endless)
            self._take("?") or self._take("+")  # a lazy or possessive mark adds no ways to match
        elif self._take("*") or self._take("+"):
            ways = self._endless(is_group)
            self._take("?") or self._take("+")
        # Two quantifiers in a row, as in {1,9}+, are refused, and so is a lazy interval: {1,9}?
        if self._rest[:1] in ("*", "+", "?", "{"):
            raise _Unsafe
        return ways

    def _interval(self, once: _Ways, is_group: bool) -> _Ways:
        """Read the rest of {2}, {2,3} or {2,} after the {; return the ways to match the repetition.

        `once` has the ways to match the repeated part a single time. Raises _Unsafe if this part
        is a group, or if the numbers in the braces are not accepted.
        """
        least, comma, most = self._until_brace().partition(",")
        if not (least + most).isascii() or not (least + most).isdecimal():
            raise _Unsafe
        if comma and not most:
            return self._endless(is_group)
        if is_group or int(most or least) > MOST_WAYS:
            raise _Unsafe
        return _Ways(1 + abs(int(most) - int(least or 0)), 0) if comma else once

    def _endless(self, is_group: bool) -> _Ways:
        """The ways to match a part that repeats without an upper bound.

        Raises _Unsafe if the part is a group.
        """
        if is_group:
            raise _Unsafe
        return _Ways(1, 1)

    def _group(self) -> _Ways:
        self._take("(")
        if self._take("?"):
            if not any(map(self._take, (":", "i:", "!", "=", "<!", "<=", ">"))):
                raise _Unsafe
        elif self._rest[:1] == "*":
            raise _Unsafe
        ways = self.alternatives()
        if not self._take(")"):
            raise _Unsafe
        return ways

    def _character(self) -> _Ways:
        """Read one character, a class, or an anchor."""
        if self._take("["):
            self._class()
        elif self._take("\\"):
            self._escape()
        elif self._rest[0] in "*+?{":
            raise _Unsafe
        else:
            self._rest = self._rest[1:]
        return _Ways(1, 0)

    def _class(self) -> None:
        self._take("^")
        if self._rest[:1] == "]":
            raise _Unsafe
        while not self._take("]"):
            if not self._rest or self._rest[0] == "[" or self._rest.startswith("&&"):
                raise _Unsafe
            if self._take("\\"):
                self._escape()
            else:
                self._rest = self._rest[1:]

    def _escape(self) -> None:
        letter, self._rest = self._rest[:1], self._rest[1:]
        if not letter or (letter.isalnum() and letter not in "pPsSdDwWnrtbBAzZhH"):
            raise _Unsafe  # such as a back reference, a group call, or a character's code
        if letter in "pP":
            if not self._take("{"):
                raise _Unsafe
            self._until_brace()

    def _take(self, text: str) -> bool:
        found = self._rest.startswith(text)
        if found:
            self._rest = self._rest[len(text) :]
        return found

    def _until_brace(self) -> str:
        text, found, self._rest = self._rest.partition("}")
        if not found:
            raise _Unsafe
        return text
