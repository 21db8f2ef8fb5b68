"""Where to cut a line that is too long: after a clause, else between words, else in the middle."""

import re

CLAUSE_ENDS = re.compile(
    r"(?<=[.!?;:,])\s+|(?<=[。！？；：，、])(?![。！？；：，、」』”’）】》])|(?<=[。！？][」』”’）】》])"
)
BLANKS = re.compile(r"\s+")


def cut_near_middle(line: str) -> tuple[int, int]:
    """The index where the first part of a line ends, and the index where the second part begins.

    The line is cut at the end of a clause: the end that is nearest to the middle of the line. A
    line without an end of a clause is cut at the blanks nearest to the middle; a line without
    blanks is cut in the middle. The blanks at the cut belong to neither part, but blanks after a
    full-width mark such as 。 begin the second part. Neither part is empty if the line has at least
    two characters and no blanks at its ends.
    """
    middle = len(line) // 2
    for boundary in CLAUSE_ENDS, BLANKS:
        cuts = (cut.span() for cut in boundary.finditer(line) if 0 < cut.start() < len(line))
        if cut := min(cuts, key=lambda span: abs(span[0] - middle), default=None):
            return cut
    return middle, middle
