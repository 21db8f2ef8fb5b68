r"""Labels that hold what their surroundings mean something by: a character is written as `\28;`.

No label of the treebanks needs it; it is what makes the forms of this folder reversible for all.
"""

import re


def escaped(label: str, special: str) -> str:
    r"""The label with its special characters and backslashes written as `\`, their number, `;`."""
    return re.sub(rf"[\\{special}]", lambda found: f"\\{ord(found[0]):x};", label)


def unescaped(label: str) -> str:
    """The label that was escaped; what is no escape stays as it is."""
    return re.sub(r"\\([0-9a-c]?[0-9a-f]{0,3});", lambda found: _character(found[1]), label)


def _character(number: str) -> str:
    return chr(int(number, 16)) if number else ""
