"""What unusual characters and capitals in the source cost: BLEU of one model's translations.

    python experiments/unusual/run.py MODEL --source FILE --reference FILE

Every line of the source is changed in one way after the other, and translated as by `regard
translate`. For comparison, the changed lines are translated without what docs/translating.md calls
"Unusual characters and capitals": as they are, by the first search alone. BLEU is computed without
case and punctuation. Prints JSON.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

from regard.files.lines import read_lines
from regard.mending.mend import mended
from regard.score.bleu import bleu
from regard.translation import load

CHANGES: dict[str, Callable[[str], str]] = {
    "none": lambda line: line,
    "three no-break spaces": lambda line: line.replace(" ", "\u00a0", 3),
    "a zero-width space before each `a`": lambda line: line.replace("a", "\u200ba"),
    "soft hyphens in long words": lambda line: re.sub(r"(\w{4})(?=\w{2})", "\\1\u00ad", line),
    "two blanks for each one": lambda line: line.replace(" ", "  "),
    "`“` and `”` around the line": lambda line: f"“{line}”",
    "`…` for the full stop": lambda line: re.sub(r"\.$", "…", line),
    "an accent on each `o` (`ō`)": lambda line: line.replace("o", "ō"),
    "an emoji after the line": lambda line: f"{line} 😀",
    "two emoji within the line": lambda line: re.sub("(?<= )", "😀 ", line, count=2),
    "A Capital Begins Each Word": lambda line: re.sub(r"\b\w", lambda m: m[0].upper(), line),
    "ALL CAPITALS": str.upper,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    args = parser.parse_args()
    lines, reference = (list(read_lines(file)) for file in (args.source, args.reference))
    translator, bare = load(args.model), load(args.model)
    bare.plain = str
    rows = {}
    for name, change in CHANGES.items():
        changed = list(map(change, lines))
        found = list(translator.stream(changed, split=True))
        by_default = [best.translations[0].text for best in mended(translator, changed, found)]
        rows[name] = {
            "as they are": score(bare.translate(changed, split=True), reference),
            "by default": score(by_default, reference),
        }
        sys.stderr.write(f"{name}: {rows[name]}\n")
    record = {"source": args.source.name, "lines": len(lines), "changes": rows}
    sys.stdout.write(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def score(texts: list[str], reference: list[str]) -> float:
    """BLEU of the texts, without case and punctuation."""
    return round(bleu(list(map(words, texts)), [list(map(words, reference))]), 1)


def words(line: str) -> str:
    """The words of a line in small letters."""
    return " ".join(re.findall(r"\w+", line.lower()))


if __name__ == "__main__":
    main()
