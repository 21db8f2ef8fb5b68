"""§6.3 For any sentence and any model, the result is one tree over exactly its words."""

import math
import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.data.tree_encoding import as_text
from regard.errors import DataError, MissingExtra, ModelError
from regard.measure.validation import compare_trees
from regard.parsing import Parser, by_blanks, load, treebank_line, treebank_words
from regard.recipe import Recipe
from regard.run.model_directory import write_model
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from regard.translation import load as load_translator
from regard.trees.penn import read_trees, with_tags_of
from regard.trees.tree import Tree

LABELS = ["S", "NP", "VP"]
TAGS = ["DT", "NN", "VBZ", ".", "-LRB-"]
SENTENCES = ["The dog barks .", "The dog sees ( the cat ) .", "Why ?", "Barks !"]
RECIPE = Recipe().but(
    output="trees", layers=1, d_model=16, d_ff=23, heads=2, vocabulary=300, beam=3, max_extra=9
)
TOKENIZER = Tokenizer.learn(SENTENCES * 3, "bpe", 300).with_symbols(
    [*(f"({label}" for label in LABELS), *(f"){label}" for label in LABELS), *TAGS]
)
ODD = [
    *(
        "one",
        "! ? . , ; :",
        "((( )))",
        "-LRB- ( -RRB- )",
        "👩‍🚀 😀 먹었다",
        "△(NP △NN (NP )NP </s>",
    ),
    *("\\/ 1\\/2 \\*", "\x1b[2J \x00 \u2028", "a" * 400, "word " * 90, "' `` '' \"", "<pad> <s>"),
]


def parser(recipe: Recipe = RECIPE, tokenizer: Tokenizer = TOKENIZER, seed: int = 1) -> Parser:
    torch.manual_seed(seed)
    return Parser(Transformer(recipe.model, tokenizer.size).eval(), tokenizer, recipe)


@pytest.mark.parametrize("form", ["tags", "normalised"])
@pytest.mark.parametrize("beam", [1, 3])
def test_an_untrained_model_gives_trees_over_exactly_the_words(form: str, beam: int) -> None:
    for seed, extra in enumerate((1, 2, 30)):
        odd = ODD if extra == 1 else [line for line in ODD if len(line) < 400]
        sentences = [by_blanks(line) for line in odd]
        some = parser(RECIPE.but(form=form, beam=beam, max_extra=extra), seed=seed)
        trees = some.parse(sentences)
        assert [tree.words() for tree in trees] == sentences
        written = list(read_trees([treebank_line(tree) for tree in trees], "out"))
        assert [as_text(tree.words()) for tree in written] == [as_text(s) for s in sentences]


def test_trees_without_tags_are_compared_by_the_tags_of_the_gold_trees() -> None:
    lines = [
        "(TOP (S (NP (NNS prices)) (: -) (NP (DT a) (NN rise)) (. .)))",
        "(TOP (S (`` \") (NP (NN rise)) ('' \") (. .)))",
    ]
    gold = [tree.children[0] for tree in read_trees(lines, "gold")]

    def normalised(node: Tree, inside: list[Tree]) -> Tree:
        return Tree(node.label if node.word is None else "XX", tuple(inside), node.word)

    found = [with_tags_of(tree.fold(normalised), tree) for tree in gold]
    assert found == gold
    summary = compare_trees(found, gold)
    assert (summary.error, summary.f1) == (0, 100.0)


def test_places_are_kept_and_a_blank_line_has_no_tree() -> None:
    lines = ["", SENTENCES[0], "  ", SENTENCES[1], ""]
    found = list(parser().stream(map(by_blanks, lines), window=2))
    assert [[one.tree.words() for one in best] for best in found] == [
        [by_blanks(line)] if line.strip() else [] for line in lines
    ]


def test_a_batch_changes_no_tree() -> None:
    sentences = [by_blanks(line) for line in SENTENCES * 3]
    random.Random(1).shuffle(sentences)
    alone = {line: parser().parse([by_blanks(line)])[0] for line in SENTENCES}
    assert parser().parse(sentences) == [alone[" ".join(sentence)] for sentence in sentences]


def test_several_trees_come_best_first_and_differ() -> None:
    [best] = parser().stream([by_blanks(SENTENCES[1])], n_best=3)
    assert len({one.tree for one in best}) == 3
    assert [one.score for one in best] == sorted((one.score for one in best), reverse=True)
    penalties = {round(one.confidence * 9 / one.score, 6) for one in best}
    assert all(penalty > 1 for penalty in penalties)  # log p / score is ((5 + n) / 6)^alpha


def test_a_normalised_model_gives_punctuation_its_tag() -> None:
    tokenizer = Tokenizer.learn(SENTENCES, "bpe", 300).with_symbols(["(S", ")S", "XX"])
    [tree] = parser(RECIPE.but(form="normalised"), tokenizer).parse([by_blanks(SENTENCES[0])])
    assert tree.tags() == ["XX", "XX", "XX", "."]


@pytest.mark.parametrize("count", [11, 37, 38, 50, 200])
def test_a_sentence_too_long_for_the_positions_is_parsed_in_parts(count: int) -> None:
    some = parser(RECIPE.but(positions="learned", max_positions=40, max_length=40))
    words = ["The"] * count
    found = list(some.stream([["dog"], words, [], ["dog"]], n_best=2))
    assert [[one.tree.words() for one in best] for best in found] == [
        [["dog"]] * len(found[0]), [words] * len(found[1]), [], [["dog"]] * len(found[3]),
    ]  # fmt: skip
    assert found[0] == found[3]
    best, second = found[1]
    assert best.score >= second.score
    assert math.isfinite(best.confidence)


def test_parts_have_the_probability_of_all() -> None:
    some = parser(RECIPE.but(positions="learned", max_positions=40, max_length=40))
    words = ["The"] * 60
    [[whole]] = some.stream([words])
    [[left], [right]] = some.stream([words[:30], words[30:]])
    assert whole.tree.children == (left.tree, right.tree)
    assert whole.score == pytest.approx(left.score + right.score)
    assert whole.confidence == pytest.approx((left.confidence + right.confidence) / 2)


def test_of_a_word_without_end_the_beginning_is_read() -> None:
    word = "🎈" * 1200
    assert [tree.words() for tree in parser().parse([["The", word], [word]])] == [
        ["The", word], [word],
    ]  # fmt: skip


def test_words_are_read_as_they_were_printed() -> None:
    assert as_text(["-LRB-", "1\\/2", "``", "New York"]) == "( 1/2 `` New_York"
    one, other = parser().parse([["-LRB-", "1\\/2"], ["(", "1/2"]])
    assert [leaf.label for leaf in one.leaves()] == [leaf.label for leaf in other.leaves()]
    assert one.words() == ["-LRB-", "1\\/2"]


def test_the_line_of_a_tree_is_that_of_treebanks() -> None:
    tree = Tree("S", (Tree("-LRB-", word="("), Tree("NN", word="dog")))
    assert treebank_line(tree) == "( (S (-LRB- -LRB-) (NN dog)))"


def test_raw_text_is_cut_as_the_treebank_is() -> None:
    pytest.importorskip("nltk")
    cut = treebank_words()
    words = cut("Mr. Hill's dog (the \"old\" one) can't bark.")
    assert " ".join(words) == "Mr. Hill 's dog ( the `` old '' one ) ca n't bark ."
    assert cut("  ") == []


def test_without_its_extra_raw_text_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nltk.tokenize", None)
    with pytest.raises(MissingExtra, match=r"pip install 'regard\[parse\]'"):
        treebank_words()


def test_a_parser_is_no_translator_and_the_other_way_round(tmp_path: Path) -> None:
    for output in ("trees", "text"):
        recipe = RECIPE.but(output=output)
        weights = Transformer(recipe.model, TOKENIZER.size).state_dict()
        write_model(tmp_path / output, recipe, TOKENIZER, weights, {})
    with pytest.raises(ModelError, match=r"trees: is a parser: use regard parse"):
        load_translator(tmp_path / "trees")
    with pytest.raises(ModelError, match=r"text: is not a parser: use regard translate"):
        load(tmp_path / "text")
    words = by_blanks(SENTENCES[0])
    assert load(tmp_path / "trees").parse([words])[0].words() == words


def test_a_tokenizer_without_trees_is_no_parsers() -> None:
    with pytest.raises(ModelError, match="no symbols of trees"):
        parser(tokenizer=Tokenizer.learn(SENTENCES, "bpe", 300))


def test_a_wide_beam_and_a_model_that_is_sure_of_nonsense() -> None:
    some = parser(RECIPE.but(beam=21))
    with torch.no_grad():  # unconstrained, it would write only the closing symbol of S
        some.model.embedding.tokens.weight[TOKENIZER.symbols[")S"]] *= 50
    words = by_blanks(SENTENCES[1])
    assert some.parse([words])[0].words() == words


def test_a_sentence_without_words_is_named() -> None:
    with pytest.raises(DataError, match="sentence:2: has no words"):
        parser().parse([["A"], [], ["dog"]])


@pytest.mark.parametrize("word", ["", " ", "New York", "a\tb"])
def test_a_word_that_no_bracketed_tree_can_have_is_named(word: str) -> None:
    with pytest.raises(DataError, match="sentence:2: word 3 is empty or has a blank"):
        parser().parse([["A"], ["A", "dog", word]])
    [tree] = parser().parse([["New\u00a0York", "is"]])
    assert tree.words() == ["New\u00a0York", "is"]


@pytest.mark.parametrize("given", ["A dog", ["A dog"]])
def test_a_text_is_no_list_of_words(given: Any) -> None:
    with pytest.raises(TypeError, match=r"give text\.split\(\)"):
        parser().parse(given)


@pytest.mark.parametrize("given", [5, None, ["A", 5], b"A dog"])
def test_what_is_no_list_of_words_is_named(given: Any) -> None:
    with pytest.raises(TypeError, match="sentence:2: expected a list of words, not "):
        parser().parse([["A", "dog"], given])


def test_windows_without_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="window = 0 is below 1"):
        next(parser().stream([["a"]], window=0))


def test_half_a_character_is_named_by_its_sentence() -> None:
    with pytest.raises(DataError, match="line 3 has a lone surrogate"):
        list(parser().stream([["a"], ["b"], ["c", "\ud83d"]], window=2))
