"""Where to cut a line that is too long: at the end of a clause, else between words."""

import re

CLAUSE_ENDS = re.compile(
    r"(?<=[.!?;:,])\s+|(?<=[。！？；：，、])(?![。！？；：，、」』”’）】》])|(?<=[。！？][」』”’）】》])"
)
BLANKS = re.compile(r"\s+")


def cut_near_middle(line: str) -> tuple[int, int]:
    """Where the first part of a line ends, and where the second part begins.

    Of all ends of clauses, or of all blanks if there are none, the one nearest to the middle is
    between the parts. A line that has neither is cut in its middle. No part is empty, if the line
    has at least two characters and no blanks at its ends.
    """
    middle = len(line) // 2
    for boundary in CLAUSE_ENDS, BLANKS:
        cuts = (cut.span() for cut in boundary.finditer(line) if 0 < cut.start() < len(line))
        if cut := min(cuts, key=lambda span: abs(span[0] - middle), default=None):
            return cut
    return middle, middle
