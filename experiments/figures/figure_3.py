"""Figure 3: does a head of the encoder attend from `make` to the `more difficult` that follows?

    P=".venv/bin/python experiments/figures/figure_3.py"
    $P --write text                     # text/train.en, .de, valid.en, .de: the demo's
    .venv/bin/regard train --recipe experiments/figures/six.toml \\
      --source text/train.en --target text/train.de \\
      --valid-source text/valid.en --valid-target text/valid.de --out runs/six
    $P runs/six

The script counts on sentences that the model has not seen, by the functions of figures.py, writes
result-six.json, and draws Figure 3 of docs/figures.md from layer 5, as the paper does.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import HERE, TEST_SEED, Link, Measures, measure, save, tagged

from regard.cli.demo_corpus import unseen, write_text
from regard.corpus import Example, examples
from regard.files.whole import write_file
from regard.run.model_directory import Model, open_model
from regard.score.bleu import bleu
from regard.translation import load
from regard.view.figures import figure
from regard.view.look import look_at

PAIRS = 20_000
LAYER = 5
"""The layer that the paper shows."""
NAME = "a form of make to more or the adjective after it"


def comparatives(e: Example) -> Iterator[Link]:
    """The link from the first form of `make` to the adjective after `more`, or to `more`."""
    for c in e.comparatives[:1]:
        more = c.source_adjective - 1
        yield Link(c.source_index, c.source_adjective, tagged(e, "JJ", "RBR"), (more,))


MAKE: Measures = {NAME: ("encoder", comparatives)}


def draw(model: Model, found: dict[str, Any]) -> None:
    """Draw layer 5, for the first unseen sentence that fits.

    It has at most 12 words, and `difficult` among them; the adjective is 6 or more words after the
    verb.
    """

    def fits(e: Example) -> bool:
        far = any(link.key - link.query > 5 for link in comparatives(e))
        return far and len(e.source_tokens) < 14 and "difficult" in e.source_tokens

    e = next(e for e in examples(TEST_SEED) if fits(e))
    seeing = look_at(model, e.source, e.target, by_words=True)
    (link,) = comparatives(e)
    first = found["chosen_by_layer"][LAYER - 1]["head"] - 1
    heads = [first, *(h for h in range(model.recipe.model.heads) if h != first)]
    save("3", figure(seeing, 3, "svg", "encoder", LAYER - 1, heads, link.query))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--write", type=Path, help="write the text to train on in this folder")
    parser.add_argument("--sentences", type=int, default=1000)
    arguments = parser.parse_args()
    if arguments.write:
        write_text(arguments.write, PAIRS)
    if arguments.model:
        model = open_model(arguments.model)
        result = measure(model, MAKE, arguments.sentences)
        outputs = load(arguments.model).translate(e.source for e in unseen())
        result["bleu"] = round(bleu(outputs, [[e.target for e in unseen()]]), 2)
        write_file(HERE / "result-six.json", json.dumps(result, indent=1) + "\n")
        draw(model, result[NAME])


if __name__ == "__main__":
    main()
