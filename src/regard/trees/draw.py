"""A tree drawn for the terminal: from the top down or, if that is too wide, as an outline.

           S                    S
       ┌───┴────┐               ├─ NP
      NP       VP               │  ├─ DT the
     ┌─┴──┐     │               │  └─ NN dog
    DT   NN    VBZ              └─ VP
     │    │     │                  └─ VBZ barks
    the  dog  barks

An empty label or word is shown as ().
"""

from collections import defaultdict
from dataclasses import dataclass, field

from regard.trees.layout import placed, refuse_deep, shown
from regard.trees.tree import Tree


def drawn(tree: Tree, columns: int | None = None) -> str:
    """The tree drawn from the top down, or as an outline if that drawing is wider than `columns`.

    Wide characters, such as those of Korean and Chinese, take two columns. If `columns` is None,
    any width is allowed. Raises DataError for a tree of more than MOST_LEVELS levels.
    """
    rows: defaultdict[int, _Row] = defaultdict(_Row)
    for item in placed(tree):
        rows[2 * item.level].write(item.left, item.text, item.width)
        if item.below:
            line = _branches(item.centre, item.below)
            rows[2 * item.level + 1].write(item.below[0], line, len(line))
    if columns is not None and any(row.width > columns for row in rows.values()):
        return outlined(tree)
    return "\n".join("".join(rows[row].pieces) for row in sorted(rows))


def outlined(tree: Tree) -> str:
    """The tree drawn as an outline: a line has a phrase's label, or a tag and its word.

    A child is on a line below its parent's line, and is indented more. Raises DataError for a tree
    of more than MOST_LEVELS levels.
    """
    refuse_deep(tree)
    lines = []
    todo = [(tree, "", "")]
    while todo:
        node, before, indent = todo.pop()
        word = "" if node.word is None else f" {shown(node.word)}"
        lines.append(f"{before}{shown(node.label)}{word}")
        branches = [(child, f"{indent}├─ ", f"{indent}│  ") for child in node.children[:-1]]
        last = [(child, f"{indent}└─ ", f"{indent}   ") for child in node.children[-1:]]
        todo.extend(reversed(branches + last))
    return "\n".join(lines)


@dataclass
class _Row:
    """A line of the drawing, which is written from left to right."""

    pieces: list[str] = field(default_factory=list)
    width: int = 0

    def write(self, column: int, text: str, width: int) -> None:
        self.pieces += [" " * (column - self.width), text]
        self.width = column + width


def _branches(centre: int, below: tuple[int, ...]) -> str:
    """The line of branches from a label, in column `centre`, to children in the columns `below`."""
    first, last = below[0], below[-1]
    if first == last:
        return "│"
    line = ["─"] * (last - first + 1)
    for child in below:
        line[child - first] = "┬"
    line[0], line[-1] = "┌", "┐"
    line[centre - first] = "┼" if centre in below else "┴"
    return "".join(line)
