"""Random trees: for Hypothesis, which shrinks failing examples, and by the thousand from a seed."""

import random

from hypothesis import strategies as st

from regard.trees.tree import Tree

# Labels and words that look like syntax, and those of the treebanks.
ODD = [
    *(
        "",
        " ",
        "(",
        ")",
        "()",
        "(NP",
        ")NP",
        "\\",
        "\\28;",
        "\\;",
        "+",
        "a+b",
        "XX",
        "\t",
        "\u2003",
    ),
    *("S", "NP", "VP", "NP-SBJ-1", "NP=2", "ADVP|PRT", "-NONE-", "-LRB-", "TOP", "``", "PRP$", ","),
    *(
        "dog",
        "new york",
        "1\\/2",
        "\xa0",
        "\x85",
        "\u2028",
        "먹었다",
        "👩\u200d🚀",
        "*T*-1",
        "\x1b[2J",
    ),
]
PLAIN_LABELS = [
    "S",
    "NP",
    "VP",
    "PP",
    "SBAR",
    "NP-SBJ-1",
    "PP-LOC=2",
    "ADVP|PRT",
    "-LRB-",
    "",
    "X+",
]
PLAIN_WORDS = [
    "the",
    "dog",
    "-LRB-",
    "1\\/2",
    "*T*-1",
    "new york",
    "\xa0",
    "사과",
    "\\",
    "'",
    "=",
    "*x*",
]

anything = st.sampled_from(ODD) | st.text(max_size=5)


def trees(
    labels: st.SearchStrategy[str] = anything,
    words: st.SearchStrategy[str] = anything,
) -> st.SearchStrategy[Tree]:
    """Trees with up to 20 leaves; without arguments, labels and words are any text."""
    return st.recursive(
        st.builds(lambda tag, word: Tree(tag, word=word), labels, words),
        lambda inside: st.builds(Tree, labels, st.lists(inside, min_size=1, max_size=4).map(tuple)),
        max_leaves=20,
    )


def penn_trees() -> st.SearchStrategy[Tree]:
    """Trees that Penn bracketing can express unchanged."""
    text = st.text(st.characters(exclude_characters="() \t\r\n\f\v", exclude_categories=["Cs"]))
    words = st.sampled_from(PLAIN_WORDS) | text.filter(bool)
    tree = trees(st.sampled_from(PLAIN_LABELS) | text, words)
    return tree.filter(lambda t: all(leaf.label or " " not in leaf.word for leaf in t.leaves()))


def random_tree(dice: random.Random) -> Tree:
    """One tree of up to 40 words: wide, deep or full of unary chains, in turn."""
    forest = [
        Tree(dice.choice(["NN", "DT", "-LRB-", ","]), word=dice.choice(PLAIN_WORDS))
        for _ in range(dice.randint(1, 40))
    ]
    while len(forest) > 1 or dice.random() < 0.4:
        start = dice.randrange(len(forest))
        end = min(len(forest), start + dice.choice([1, 1, 2, 2, 3, 5]))
        forest[start:end] = [Tree(dice.choice(PLAIN_LABELS), tuple(forest[start:end]))]
    return forest[0]


def chain(levels: int, branch: bool = False) -> Tree:
    """A tree of this many levels; with `branch`, each has a word beside the next level."""
    tree = Tree("NN", word="end")
    for _ in range(levels):
        tree = Tree("NP", (Tree("DT", word="a"), tree) if branch else (tree,))
    return tree
