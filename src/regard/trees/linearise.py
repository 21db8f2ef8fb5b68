r"""§6.3 Convert a tree into the token sequence that the decoder writes, and back.

    (S (NP (DT The) (NN dog)) (VP (VBZ barks)))
    (S (NP DT NN )NP (VP VBZ )VP )S

As in "Grammar as a Foreign Language" (Vinyals & Kaiser et al., 2015), each phrase opens and closes
with a token of its own, and each leaf is one token; the words are only in the source. That paper
writes every leaf as XX. The authors of the Transformer wrote every leaf as its tag, as their code
shows. (Their code writes NP and /NP. Here, tokens have brackets, so that no label can be mistaken
for a tag.) The outer bracket, around the whole tree, is dropped beforehand, by `strip.stripped`.

A token that begins with ( opens a phrase, a token that begins with ) closes a phrase, and any other
token is a leaf. No token is empty or holds blanks: in a label or tag, round brackets, backslashes
and blanks are written as hexadecimal code points, `\28;`, and an empty tag is written `\;`. The
usual treebanks have no such labels or tags.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from regard.trees.escapes import escaped, unescaped
from regard.trees.tree import Tree

Form = Literal["tags", "normalised"]
"""How a leaf is written: as its tag, which is what the authors did, or as XX."""
NORMALISED = "XX"
OPEN, CLOSE = "(", ")"
EMPTY = r"\;"


class IllFormed(ValueError):
    """The sequence is not a tree over the words; the wrong token is number `position`, from 1.

    If the sequence is empty or ends inside the tree, `position` is one more than the number of
    tokens.
    """

    def __init__(self, problem: str, position: int):
        super().__init__(f"token {position}: {problem}")
        self.position = position


def linearise(tree: Tree, form: Form = "tags") -> list[str]:
    """The tokens of a tree, from left to right.

    `delinearise` restores the tree from the tokens and the words. If `form` is "normalised",
    `delinearise` needs the tags as well.
    """
    tokens: list[str] = []
    todo: list[Tree | str] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, str):
            tokens.append(node)
        elif node.word is None:
            label = escaped(node.label)
            tokens.append(OPEN + label)
            todo.append(CLOSE + label)
            todo.extend(reversed(node.children))
        else:
            tokens.append(_tag(node.label) if form == "tags" else NORMALISED)
    return tokens


def delinearise(
    tokens: Sequence[str], words: Sequence[str], tags: Sequence[str] | None = None
) -> Tree:
    """The tree that the tokens describe; its leaves have the words `words`, from left to right.

    `tags` gives a tag for each word. If it is None, the tokens of the leaves are the tags. Raises
    IllFormed, which names the token, if the tokens are not a tree or do not have one leaf for each
    word. Raises ValueError if there are not as many `tags` as words.
    """
    if tags is not None and len(tags) != len(words):
        raise ValueError(f"{len(tags)} tags for {len(words)} words")
    whole = _Open("", 0)
    around = [whole]
    leaves = 0
    for position, token in enumerate(tokens, 1):
        if whole.children:
            raise IllFormed(f"{token!r} comes after the end of the tree", position)
        if token.startswith(OPEN):
            around.append(_Open(token.removeprefix(OPEN), position))
            continue
        if token.startswith(CLOSE):
            node = _closed(around, token, position)
        elif leaves == len(words):
            raise IllFormed(f"{token!r} is one leaf too many for {leaves} words", position)
        else:
            tag = unescaped(token) if tags is None else tags[leaves]
            node = Tree(tag, word=words[leaves])
            leaves += 1
        around[-1].children.append(node)
    if not whole.children:
        missing = f"{OPEN}{around[-1].label} is not closed" if around[1:] else "the tree is missing"
        raise IllFormed(f"the sequence ends, and {missing}", len(tokens) + 1)
    if leaves < len(words):
        raise IllFormed(
            f"{tokens[-1]!r} ends the tree after {leaves} of {len(words)} leaves", len(tokens)
        )
    return whole.children[0]


@dataclass(slots=True)
class _Open:
    """A phrase that is not closed yet.

    `label` is still escaped, as in the token; `position` is the number of the token that opened the
    phrase. The outermost _Open is not a phrase: its only child becomes the whole tree.
    """

    label: str
    position: int
    children: list[Tree] = field(default_factory=list)


def _closed(around: list[_Open], token: str, position: int) -> Tree:
    if len(around) == 1:
        raise IllFormed(f"{token!r} closes a phrase where none is open", position)
    phrase = around.pop()
    if token.removeprefix(CLOSE) != phrase.label:
        opened = f"{OPEN}{phrase.label}"
        raise IllFormed(f"{token!r} closes {opened!r}, opened by token {phrase.position}", position)
    if not phrase.children:
        raise IllFormed(f"{token!r} closes a phrase that has nothing in it", position)
    return Tree(unescaped(phrase.label), tuple(phrase.children))


def _tag(tag: str) -> str:
    return escaped(tag) or EMPTY
