"""Check that every output of a parser is a tree over exactly the words, however odd they are.

    .venv/bin/python experiments/constraint/valid.py MODEL TEXT...

Each line of the files TEXT is a sentence of words between blanks; sentences of odd words, which no
treebank has, are added. The script parses the sentences, writes each tree, reads it back, and
prints how many trees have exactly the words of their sentence. The exit status is 1 if one has not.
"""

import argparse
import sys
from pathlib import Path

import regard.parsing
from regard.trees.penn import bracketed, plain_word, read_trees

ODD = [
    *(["Yes"], ["dog"] * 300, ["0"] * 50, ["a" * 500], ["A", "B"] * 140),
    *(list(".,;:!?…--'\"`()[]"), ["("], [")"], ["((((", "))))"], ["(", "(S", ")", "()", "DT"]),
    *(["(TOP", "(XX", "word))"], ["-LRB-", "-RRB-"], ["*T*-1", "-NONE-"], ["NP|<X>"]),
    *(["\\", "\\;", "\\28;"], ["<s>", "</s>", "<pad>"], ["\u200b"], ["e\u0301", "\u0301"]),
    *(["🙂", "👩\u200d👩\u200d👧", "x"], ["한국어", "문장", "입니다", "."]),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path, nargs="+")
    args = parser.parse_args()
    lines = [line.split() for path in args.text for line in path.open(encoding="utf-8")]
    sentences = [words for words in lines if words] + ODD
    wrong = 0
    trees = regard.parsing.load(args.model).parse(sentences)
    for words, tree in zip(sentences, trees, strict=True):
        (back,) = read_trees([bracketed(tree)], "the output")
        if list(map(plain_word, back.words())) != list(map(plain_word, words)):
            wrong += 1
            sys.stderr.write(f"not so: {words}\n")
    right = f"{len(sentences) - wrong:,} of {len(sentences):,}"
    sys.stdout.write(f"{right} are trees over exactly their words\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
