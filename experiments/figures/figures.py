"""Count how often heads attend along true dependencies, in sentences the model has never seen.

    .venv/bin/regard demo --out runs/demo
    .venv/bin/python experiments/figures/figures.py runs/demo

The built-in grammar knows the true dependencies. For each kind of dependency, the head that is
right most often on one set of sentences is chosen, and counted on another set. The script writes
result.json beside itself, and draws the figures of docs/figures.md except Figure 3, which
figure_3.py draws.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from regard.cli.demo_corpus import TEST_SEED
from regard.corpus import Example, examples
from regard.files.whole import write_file
from regard.run.model_directory import Model, open_model
from regard.transformer import Transformer
from regard.trees.penn import read_trees
from regard.trees.tree import Tree
from regard.view.figures import figure
from regard.view.look import Look, look_at
from regard.view.recording import AttentionKind

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "docs/figures"
CHOICE_SEED = TEST_SEED + 1
"""The seed of the sentences on which a head is chosen."""


@dataclass(frozen=True)
class Link:
    """A dependency of one sentence: from a query to the key it should attend to most."""

    query: int
    key: int
    options: tuple[int, ...]
    """The places of all words of the same sort as the key; a guess takes one of them."""
    also: tuple[int, ...] = ()
    """Keys that are as good as `key`."""

    @property
    def keys(self) -> list[int]:
        """Every key that is right."""
        return [self.key, *self.also]


def pronouns(e: Example) -> Iterator[Link]:
    """The link from the first `it` or `its` to the noun that the pronoun stands for."""
    for p in e.pronouns[:1]:
        yield Link(p.source_index, p.source_antecedent, tagged(e, "NN"))


def particles(e: Example) -> Iterator[Link]:
    """The link from the place where a separated particle is written to the English verb."""
    for s in e.separable[:1]:
        yield Link(s.target_particle, s.source_index, tagged(e, "VB", "MD"))


def halves(e: Example) -> Iterator[Link]:
    """The link from the place where a separated particle is written to the German verb."""
    for s in e.separable[:1]:
        # The decoder's place i reads word i - 1 (place 0 reads <s>) and writes word i.
        yield Link(s.target_particle, s.target_index + 1, ())


def joined(e: Example) -> Iterator[Link]:
    """The link from the place where a separated particle is read to the German verb."""
    for s in e.separable[:1]:
        yield Link(s.target_particle + 1, s.target_index + 1, ())


def determiners(e: Example) -> Iterator[Link]:
    """The links from each determiner to the noun of its phrase, if it is not the next word."""
    (tree,) = read_trees([e.tree], "the grammar")
    places = {id(leaf): place for place, leaf in enumerate(tree.leaves())}
    for node in tree.nodes():
        inside: list[Tree] = [c for c in node.children if not c.children]
        if node.label != "NP" or not inside or not inside[-1].label.startswith("NN"):
            continue
        noun = places[id(inside[-1])]
        for leaf in inside[:-2]:
            if leaf.label == "DT":
                yield Link(places[id(leaf)], noun, tagged(e, "NN"))


def subjects(e: Example) -> Iterator[Link]:
    """The links from each finite verb to the noun of its subject, if other words are between."""
    (tree,) = read_trees([e.tree], "the grammar")
    places = {id(leaf): place for place, leaf in enumerate(tree.leaves())}
    for node in tree.nodes():
        labels = [child.label for child in node.children]
        if node.label != "S" or not {"NP", "VP"} <= set(labels):
            continue
        subject = node.children[labels.index("NP")]
        while subject.children[0].label == "NP":  # an NP in an NP: a modifier follows
            subject = subject.children[0]
        noun = subject.children[-1]
        verb = next(node.children[labels.index("VP")].leaves())
        if noun.label.startswith("NN") and places[id(verb)] - places[id(noun)] > 1:
            yield Link(places[id(verb)], places[id(noun)], tagged(e, "NN"))


def before(e: Example) -> Iterator[Link]:
    """The links from each word to the word before it."""
    for place in range(1, len(e.source_tokens)):
        yield Link(place, place - 1, ())


def tagged(e: Example, *tags: str) -> tuple[int, ...]:
    """The places of the English words whose tag begins with one of `tags`."""
    (tree,) = read_trees([e.tree], "the grammar")
    return tuple(i for i, tag in enumerate(tree.tags()) if tag.startswith(tags))


Measures = dict[str, tuple[AttentionKind, Callable[[Example], Iterator[Link]]]]
"""By name, a kind of attention, and a function that gives the links of a sentence."""

MEASURES: Measures = {
    "a pronoun to its antecedent": ("encoder", pronouns),
    "writing a separated particle, to the English verb": ("cross", particles),
    "writing a separated particle, to the German verb": ("decoder", halves),
    "having read a separated particle, to the German verb": ("decoder", joined),
    "a determiner to its noun, an adjective between": ("encoder", determiners),
    "a verb to the noun of its subject, other words between": ("encoder", subjects),
    "a word to the one before it": ("encoder", before),
}


@dataclass
class Count:
    """Counts of one kind of dependency, over sentences."""

    right: NDArray[np.int64]
    """How often each head was right, by layer and head."""
    weight: NDArray[np.float64]
    """The sum of each head's weights on right keys, by layer and head."""
    total: int = 0
    places: Fraction = Fraction(0)
    """The expected number of right guesses among all places that may be attended to."""
    options: Fraction = Fraction(0)
    """The expected number of right guesses among all words of the key's sort."""
    offsets: Counter[int] = field(default_factory=Counter)

    def add(self, weights: NDArray[np.float32], link: Link, reachable: int) -> None:
        """Count one link; `weights` are those of its query: [layers, heads, keys].

        The query can attend to `reachable` keys.
        """
        self.right += np.isin(weights.argmax(-1), link.keys)
        self.weight += weights[..., link.keys].sum(-1)
        self.total += 1
        self.places += Fraction(len(link.keys), reachable)
        if link.options:
            self.options += Fraction(len(link.keys), len(link.options))
        self.offsets.update(key - link.query for key in link.keys)


def count(model: Model, measures: Measures, seed: int, sentences: int) -> dict[str, Count]:
    """Counts of each measure, over the first `sentences` sentences of a stream that have links.

    Raises ValueError if the model divides a sentence into other words than the grammar.
    """
    recipe = model.recipe.model
    shape = recipe.layers, recipe.heads
    counts = {name: Count(np.zeros(shape, int), np.zeros(shape)) for name in measures}
    seen: Counter[str] = Counter()
    for e in examples(seed):
        links = {
            name: found
            for name, (_, of) in measures.items()
            if seen[name] < sentences and (found := list(of(e)))
        }
        if all(seen[name] == sentences for name in measures):
            return counts
        if not links:
            continue
        seen.update(list(links))
        seeing = look_at(model, e.source, e.target, by_words=True)
        if seeing.source[:-1] != e.source_tokens or seeing.written[:-1] != e.target_tokens:
            raise ValueError(f"the words of {e.source!r} are not the grammar's")
        for name, found in links.items():
            kind = measures[name][0]
            for link in found:
                weights = seeing.weights[kind][:, :, link.query]
                reachable = link.query + 1 if kind == "decoder" else weights.shape[-1]
                counts[name].add(weights, link, reachable)
    raise AssertionError("the stream is endless")


def untrained(model: Model) -> Model:
    """A model of the same shape that has learned nothing."""
    torch.manual_seed(1)
    return replace(model, network=Transformer(model.recipe.model, model.tokenizer.size).eval())


def measure(model: Model, measures: Measures, sentences: int) -> dict[str, Any]:
    """For each measure: the chosen head, how often it is right, and how often guesses would be."""
    seeds, blank = (CHOICE_SEED, TEST_SEED), untrained(model)
    chosen_on, counted = (count(model, measures, seed, sentences) for seed in seeds)
    blank_chosen, blank_counted = (count(blank, measures, seed, sentences) for seed in seeds)
    result = {}
    for name, test in counted.items():
        layer, head = best(chosen_on[name])
        blank_layer, blank_head = best(blank_chosen[name])
        offset, _ = chosen_on[name].offsets.most_common(1)[0]
        result[name] = {
            "kind": measures[name][0],
            "layer": layer + 1,
            "head": head + 1,
            "dependencies": test.total,
            "right": int(test.right[layer, head]),
            "mean_weight": round(float(test.weight[layer, head]) / test.total, 3),
            "chance_any_place": round(float(test.places), 1),
            "chance_any_such_word": round(float(test.options), 1) or None,
            "always_the_commonest_distance": test.offsets[offset],
            "best_head_untrained": int(blank_counted[name].right[blank_layer, blank_head]),
            "right_by_layer_and_head": test.right.tolist(),
            "chosen_by_layer": [
                {"head": int(row.argmax()) + 1, "right": int(test.right[i, row.argmax()])}
                for i, row in enumerate(chosen_on[name].right)
            ],
        }
    return result


def best(found: Count) -> tuple[int, int]:
    """The layer and head that are right most often."""
    layer, head = np.unravel_index(found.right.argmax(), found.right.shape)
    return int(layer), int(head)


def draw(model: Model, result: dict[str, Any]) -> None:
    """Draw the figures, each for the first unseen sentence that is suitable."""

    def of(name: str) -> tuple[AttentionKind, int, int]:
        one = result[name]
        return one["kind"], one["layer"] - 1, one["head"] - 1

    def seen(fits: Callable[[Example], bool]) -> tuple[Example, Look]:
        e = next(e for e in examples(TEST_SEED) if fits(e))
        return e, look_at(model, e.source, e.target, by_words=True)

    kind, layer, head = of("having read a separated particle, to the German verb")
    e, seeing = seen(lambda e: any(s.target_particle - s.target_index > 4 for s in e.separable))
    heads = [head, *(h for h in range(model.recipe.model.heads) if h != head)]
    (link, *_) = joined(e)
    save("particle", figure(seeing, 3, "svg", kind, layer, heads, link.query))

    kind, layer, head = of("a pronoun to its antecedent")
    e, seeing = seen(lambda e: any(link.query - link.key > 5 for link in pronouns(e)))
    (link, *_) = pronouns(e)
    others = seeing.weights[kind][layer, :, link.query].max(-1)
    others[head] = 0
    save("4", figure(seeing, 4, "svg", kind, layer, [head, int(others.argmax())], link.query))

    kind, layer, head = of("a determiner to its noun, an adjective between")
    _, _, other = of("a word to the one before it")
    _, seeing = seen(lambda e: bool(list(determiners(e)) and list(pronouns(e))))
    save("5", figure(seeing, 5, "svg", kind, layer, [head, other], None))


def save(name: str, content: bytes) -> None:
    """Write one figure."""
    PICTURES.mkdir(exist_ok=True)
    write_file(PICTURES / f"figure-{name}.svg", content)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    arguments = parser.parse_args()
    model = open_model(arguments.model)
    result = measure(model, MEASURES, arguments.sentences)
    write_file(HERE / "result.json", json.dumps(result, indent=1) + "\n")
    draw(model, result)


if __name__ == "__main__":
    main()
