"""Trees become pairs of sub-words and symbols, from which every tree can be restored."""

from collections import Counter
from pathlib import Path

import pytest

from regard.corpus import example
from regard.data.aligned import Progress
from regard.data.pairs import Pairs, recipe_of
from regard.data.prepare import Report
from regard.data.tree_encoding import as_text
from regard.data.treebank import prepare_trees
from regard.errors import DataError, RecipeError
from regard.files.lines import read_lines
from regard.inputs import TrainingFiles
from regard.recipe import Recipe
from regard.text.tokenizer import EOS, Tokenizer
from regard.trees.linearise import delinearise
from regard.trees.penn import read_trees
from regard.trees.strip import stripped
from regard.trees.tree import Tree

RECIPE = Recipe().but(output="trees", vocabulary=400, held_out=7)
ODD = [
    "( (S (NP-SBJ-1 (DT The) (NN dog)) (VP (VBZ barks) (NP (-NONE- *-1))) (. .)))",
    "( (FRAG (-LRB- -LRB-) (CD 1\\/2) (-RRB- -RRB-)))",
    "( (NP (NN alpha 2)))",
    "( (X (-NONE- *)))",
]


def written(folder: Path, name: str, lines: list[str]) -> Path:
    path = folder / name
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def made(count: int, seed: int) -> list[str]:
    return [example(seed, i).tree for i in range(count)]


def tree_of(line: str) -> Tree | None:
    [tree] = read_trees([line], "test")
    return stripped(tree)


def learned(data: Path, split: str) -> list[tuple[str, Tree]]:
    """The content of a split: the text of each source, and the tree that its target spells."""
    pairs, tokenizer = Pairs.open(data, split), Tokenizer.load(data / "tokenizer.json")
    names = {i: name for name, i in tokenizer.symbols.items()}
    found = []
    for i in range(len(pairs)):
        source, target = pairs.source(i).tolist(), pairs.target(i).tolist()
        assert source[-1] == target[-1] == EOS
        [text] = tokenizer.decode([source[:-1]])
        symbols = [names[token] for token in target[:-1]]
        words = text.split(" ") if len(text.split(" ")) == _leaves(symbols) else [text]
        found.append((text, delinearise(symbols, words)))
    return found


def _leaves(symbols: list[str]) -> int:
    return sum(not symbol.startswith(("(", ")")) for symbol in symbols)


def prepared(folder: Path, recipe: Recipe = RECIPE, **files: object) -> Report:
    arguments = {"trees": [], "out": folder / "data", "recipe": recipe} | files
    return prepare_trees(**arguments)  # type: ignore[arg-type]


def test_trees_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "train.mrg", made(20, seed=1))

    def grow(progress: Progress) -> None:
        if progress.stage == "learn":
            written(tmp_path, "train.mrg", [*made(20, seed=1), "( (NEW (LABEL a)))"])

    with pytest.raises(DataError, match=r"^'\(NEW' was in no tree when .*: do not change them"):
        prepared(tmp_path, trees=[path], progress=grow)
    assert not (tmp_path / "data").exists()


def test_every_tree_can_be_read_again(tmp_path: Path) -> None:
    lines = [*made(40, seed=1), *ODD]
    report = prepared(
        tmp_path,
        trees=[written(tmp_path, "train.mrg", lines)],
        valid_trees=[written(tmp_path, "valid.mrg", ODD)],
    )
    trees = [tree for line in lines if (tree := tree_of(line))]
    assert [text for text, _ in learned(tmp_path / "data", "train")] == [
        as_text(tree.words()) for tree in trees
    ]
    plain = {"-LRB-": "(", "-RRB-": ")", "1\\/2": "1/2", "alpha 2": "alpha_2"}
    for (_, found), tree in zip(learned(tmp_path / "data", "train"), trees, strict=True):
        words = [plain.get(word, word) for word in tree.words()]
        assert (found.words(), found.tags()) == (words, tree.tags())
        assert found.spans() == tree.spans()
    assert (report.train.kept, report.valid.kept) == (43, 3)
    assert report.vocabulary <= 400
    assert recipe_of(tmp_path / "data") == RECIPE


def test_validation_trees_are_kept_as_trees(tmp_path: Path) -> None:
    train = written(tmp_path, "train.mrg", made(20, seed=1))
    prepared(tmp_path, trees=[train], valid_trees=[written(tmp_path, "valid.mrg", ODD)])
    kept = list(read_trees(read_lines(tmp_path / "data" / "valid.target.txt"), "valid"))
    assert [tree.label for tree in kept] == ["TOP"] * 3
    assert [tree.children[0] for tree in kept] == [t for line in ODD if (t := tree_of(line))]


@pytest.mark.parametrize("word", ["%PDF-1.4", "\ufeffa"])
def test_the_first_word_for_validation_may_look_like_another_kind_of_file(
    word: str, tmp_path: Path
) -> None:
    train = written(tmp_path, "train.mrg", made(20, seed=1))
    odd = written(tmp_path, "valid.mrg", ["( (X (Y z)))", f"( (NP (NN {word}) (NN file)))"][::-1])
    prepared(tmp_path, trees=[train], valid_trees=[odd])
    sentences = list(read_lines(tmp_path / "data" / "valid.source.txt"))
    assert sentences == [f"{word} file", "z"]


def test_normalised_tags_are_one_symbol(tmp_path: Path) -> None:
    train = written(tmp_path, "train.mrg", made(30, seed=1))
    prepared(tmp_path, RECIPE.but(form="normalised"), trees=[train])
    symbols = Tokenizer.load(tmp_path / "data" / "tokenizer.json").symbols
    assert [name for name in symbols if not name.startswith(("(", ")"))] == ["XX"]
    assert {tag for _, tree in learned(tmp_path / "data", "train") for tag in tree.tags()} == {"XX"}


def test_training_trees_that_validate_are_counted(tmp_path: Path) -> None:
    lines, remarks = made(21, seed=1), list[str]()
    train = written(tmp_path, "train.mrg", lines[:20])
    valid = written(tmp_path, "valid.mrg", [lines[3], lines[3], lines[20]])
    files = TrainingFiles(trees=[train], valid_trees=[valid])
    report = files.prepare(tmp_path / "data", RECIPE, remark=remarks.append)
    assert (report.train.kept, report.train.validated) == (20, 1)
    [said] = remarks
    assert said.startswith("1 training tree is also in the validation files, which have 3 trees")
    assert prepared(tmp_path, trees=[train]).train.validated == 0  # drawn trees are not trained on


def test_held_out_trees_and_their_copies_are_not_learned(tmp_path: Path) -> None:
    lines = made(50, seed=1)
    train = written(tmp_path, "train.mrg", lines + lines)
    report = prepared(tmp_path, trees=[train], silver=[written(tmp_path, "silver.mrg", lines)])
    held_out = {text for text, _ in learned(tmp_path / "data", "valid")}
    assert 1 < len(held_out) <= 7
    assert not held_out & {text for text, _ in learned(tmp_path / "data", "train")}
    assert report.train.held_out >= 3 * len(held_out)
    assert report.train.kept + report.train.held_out == 150


def test_a_held_out_sentence_is_not_learned_in_another_spelling(tmp_path: Path) -> None:
    gold = [f"(S (CD {n}\\/2) (VP (VBZ falls)))" for n in range(20)]
    silver = [line.replace("\\/", "/") for line in gold]
    files = [written(tmp_path, "gold.mrg", gold)], [written(tmp_path, "silver.mrg", silver)]
    report = prepared(tmp_path, trees=files[0], silver=files[1])
    assert (report.train.kept, report.train.held_out) == (36, 4)


def test_the_share_of_silver_trees_does_not_count_what_is_held_out(tmp_path: Path) -> None:
    gold, silver = made(200, seed=1), made(800, seed=2)
    recipe = RECIPE.but(held_out=20)
    files = [written(tmp_path, "gold.mrg", gold)], [written(tmp_path, "silver.mrg", silver)]
    prepared(tmp_path, recipe, trees=files[0], silver=files[1], silver_share=0.5)
    found = Counter(text for text, _ in learned(tmp_path / "data", "train"))
    texts = {as_text(tree.words()) for line in silver if (tree := tree_of(line))}
    of_silver = sum(count for text, count in found.items() if text in texts)
    assert of_silver / found.total() == pytest.approx(0.5, abs=0.01)


def test_recombined_trees_are_of_gold_trees_alone(tmp_path: Path) -> None:
    lines = made(50, seed=1)
    train = written(tmp_path, "train.mrg", lines)
    report = prepared(tmp_path, RECIPE.but(recombined=200), trees=[train])
    held_out = {text for text, _ in learned(tmp_path / "data", "valid")}
    found = [text for text, _ in learned(tmp_path / "data", "train")]
    gold = {as_text(tree.words()) for line in lines if (tree := tree_of(line))}
    assert not held_out & set(found)
    assert 2 * len(gold) < len(set(found) - gold) < 4 * len(lines)
    assert {word for text in found for word in text.split()} <= {
        word for text in gold - held_out for word in text.split()
    }
    assert report.train.kept == len(found)
    again = tmp_path / "again"
    again.mkdir()
    prepared(again, RECIPE.but(recombined=200), trees=[train])
    assert [text for text, _ in learned(again / "data", "train")] == found


def test_so_many_trees_are_not_made(tmp_path: Path) -> None:
    train = written(tmp_path, "train.mrg", made(20, seed=1))
    most = prepared(tmp_path, RECIPE.but(recombined=10**6), trees=[train]).train.kept
    assert 100 < most <= 18 * 21
    (tmp_path / "silver").mkdir()
    silver = [written(tmp_path / "silver", "silver.mrg", made(3, seed=2))]
    recipe = RECIPE.but(recombined=10**6)
    assert prepared(tmp_path / "silver", recipe, trees=[train], silver=silver).train.kept <= 23


@pytest.mark.parametrize("share", [0.1, 0.5, 0.625, 0.9])
@pytest.mark.parametrize("scored", [True, False])
def test_silver_trees_have_their_share(tmp_path: Path, share: float, scored: bool) -> None:
    gold, silver = made(20, seed=1), made(40, seed=2)
    lines = [f"{-0.5 - i}\t( {tree})" if scored else tree for i, tree in enumerate(silver)]
    prepared(
        tmp_path,
        trees=[written(tmp_path, "gold.mrg", gold)],
        valid_trees=[written(tmp_path, "valid.mrg", ODD)],
        silver=[written(tmp_path, "silver.mrg", lines)],
        silver_share=share,
    )
    counts = Counter(text for text, _ in learned(tmp_path / "data", "train"))
    texts = [as_text(tree.words()) for line in silver if (tree := tree_of(line))]
    of_silver = sum(counts[text] for text in texts)
    assert of_silver / counts.total() == pytest.approx(share, abs=0.02)
    assert len(counts) == 60  # nothing is left out
    assert max(counts[text] for text in texts) - min(counts[text] for text in texts) <= 1


@pytest.mark.parametrize("failed", ["(())", "()"])
def test_a_parser_may_fail_at_its_first_sentence(tmp_path: Path, failed: str) -> None:
    train = written(tmp_path, "train.mrg", made(20, seed=1))
    lines = ["", failed, *(f"-0.5\t( {tree})" for tree in made(10, seed=2)), failed]
    silver = [written(tmp_path, "silver.mrg", lines)]
    report = prepared(tmp_path, trees=[train], valid_trees=[train], silver=silver)
    assert report.train.kept == 30


def test_what_is_too_long_is_not_learned(tmp_path: Path) -> None:
    train = written(tmp_path, "train.mrg", made(60, seed=1))
    report = prepared(tmp_path, RECIPE.but(max_length=40, row_length=40), trees=[train])
    assert report.train.too_long > 5
    assert Pairs.open(tmp_path / "data", "train").target_lengths.max() <= 40


def test_a_tokenizer_is_kept_and_must_have_every_label(tmp_path: Path) -> None:
    train = written(tmp_path, "train.mrg", made(30, seed=1))
    first = prepared(tmp_path, trees=[train])
    known = tmp_path / "data" / "tokenizer.json"
    again = prepared(tmp_path, trees=[train], tokenizer=known, out=tmp_path / "again")
    assert first.fingerprint == again.fingerprint
    odd = written(tmp_path, "odd.mrg", ODD * 10)
    with pytest.raises(DataError, match=r"the tokenizer has no symbol '\(FRAG'"):
        prepared(tmp_path, trees=[odd], tokenizer=known, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_vocabulary_without_room_for_the_symbols_says_how_much_there_must_be(
    tmp_path: Path,
) -> None:
    train = written(tmp_path, "train.mrg", made(30, seed=1))
    with pytest.raises(
        RecipeError, match=r"300 entries .* symbols of trees: give at least"
    ) as said:
        prepared(tmp_path, RECIPE.but(vocabulary=300), trees=[train])
    least = int(str(said.value).split()[-1])
    assert prepared(tmp_path, RECIPE.but(vocabulary=least), trees=[train]).vocabulary == least


def test_trees_are_not_repeated_without_end(tmp_path: Path) -> None:
    gold, silver = (written(tmp_path, f"{i}.mrg", made(20, seed=i)) for i in (1, 2))
    with pytest.raises(RecipeError, match="would repeat a tree 9,999 times: at most 1,000"):
        prepared(tmp_path, trees=[gold], valid_trees=[gold], silver=[silver], silver_share=0.9999)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "train.mrg: has no tree"),
        (["( (X (-NONE- *)))"], "train.mrg: has no tree"),
        (ODD, "train.mrg: has 3 trees, too few to hold out a tenth"),
        (["(S (NN dog)"], "train.mrg:1:1: the tree that begins here"),
        (["0.5\t(S (NN dog)) (S (NN dog))"], "train.mrg:1: holds 2 trees"),
        (["", "0.5\t(S (NN x))", "word\t(S (NN dog))"], "train.mrg:3: 'word' is not a score"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, lines: list[str], said: str) -> None:
    with pytest.raises(DataError) as refusal:
        prepared(tmp_path, trees=[written(tmp_path, "train.mrg", lines)])
    assert said in str(refusal.value)
    assert not (tmp_path / "data").exists()
