r"""Escape the characters of a label that have a special meaning in a written tree: ( as `\28;`.

No label of the usual treebanks has such characters. With the escapes, `linearise` is reversible for
any label.
"""

import re


def escaped(label: str) -> str:
    r"""Write each round bracket, blank and backslash as `\`, its hexadecimal code point and `;`."""
    return re.sub(r"[\\()\s]", lambda found: f"\\{ord(found[0]):x};", label)


def unescaped(label: str) -> str:
    r"""Undo `escaped`, and remove each `\;` (an empty tag); other text stays as it is."""
    return re.sub(r"\\([0-9a-c]?[0-9a-f]{0,3});", lambda found: _character(found[1]), label)


def _character(number: str) -> str:
    return chr(int(number, 16)) if number else ""
