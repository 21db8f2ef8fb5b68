"""A parser as users make one: trained on trees by one command, then run on files and refused."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.refusing import GOOD, Result, World, forked, refused, regard
from regard.corpus import example
from regard.measure.validation import compare_trees
from regard.run.journal import read_journal
from regard.trees.penn import read_trees
from regard.trees.tree import Tree

TINY = [
    argument
    for assignment in (
        *("model.layers=1", "model.d_model=128", "model.d_ff=256", "model.dropout=0.0"),
        *("model.attention_dropout=0.0", "model.heads=4", "tokenizer.vocabulary=900"),
        *("data.max_length=64", "data.row_length=64", "data.source_tokens=1024"),
        *("data.target_tokens=1024", "training.steps=220", "training.warmup_steps=185"),
        *("training.validate_every=110", "training.validate_sentences=9"),
        *("training.save_every=20", "training.keep=3", "training.average=3"),
        *("training.label_smoothing=0.0", "search.beam=1"),
    )
    for argument in ("--set", assignment)
]
UNSEEN = [example(3, i) for i in range(60)]
LINES = "".join(" ".join(e.source_tokens) + "\n" for e in UNSEEN)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trees, gold, silver and for validation, and a parser that learned from them for seconds."""
    folder = tmp_path_factory.mktemp("parser")
    for name, seed, count in (("train.mrg", 1, 700), ("silver.trees", 4, 200), ("dev.mrg", 2, 20)):
        score = "-0.25\t" if name == "silver.trees" else ""
        lines = (f"{score}( {example(seed, i).tree})\n" for i in range(count))
        first = "( (NP (NN alpha 2)))\n" if name == "dev.mrg" else ""  # a word with a blank
        (folder / name).write_text(first + "".join(lines), encoding="utf-8")
    assert train(folder, *TINY).status == 0
    return folder


def train(folder: Path, *more: str) -> Result:
    files = ["--trees", folder / "train.mrg", "--valid-trees", folder / "dev.mrg"]
    silver = ["--silver", folder / "silver.trees", "--silver-share", "0.25"]
    return forked("train", "-q", "--task", "parse", *files, *silver, "--out", folder / "run", *more)


def parse(folder: Path, *options: str, text: str = LINES) -> list[str]:
    result = forked("parse", folder / "run", "--tokenised", *options, stdin=text.encode())
    assert result.status == 0, result.stderr
    return result.stdout.split("\n")[:-1]


def flat(words: tuple[str, ...]) -> Tree:
    return Tree("S", tuple(Tree("." if word == "." else "NN", word=word) for word in words))


def test_seconds_of_training_make_a_parser(folder: Path) -> None:
    found = [tree.children[0] for tree in read_trees(parse(folder), "out")]
    gold = list(read_trees((e.tree for e in UNSEEN), "gold"))
    assert [tuple(tree.words()) for tree in found] == [e.source_tokens for e in UNSEEN]
    nothing_known = compare_trees(map(flat, (e.source_tokens for e in UNSEEN)), gold)
    figures = compare_trees(found, gold)
    assert nothing_known.f1 < 20
    assert figures.f1 > 35
    assert figures.error == 0
    validations = [r for r in read_journal(folder / "run/journal.jsonl") if "f1" in r]
    assert len(validations) == 2
    assert {"perplexity", "samples"} <= validations[-1].keys()
    assert validations[-1]["samples"][0]["source"] == "alpha_2"
    assert "bleu" not in validations[-1]


def test_the_same_command_goes_on_and_says_what_it_made(folder: Path) -> None:
    model = (folder / "run/model.safetensors").read_bytes()
    told = train(folder, *TINY).stdout.splitlines()[-1]
    assert told == f"{folder / 'run'}: done; parse with: regard parse {folder / 'run'} < in.txt"
    assert (folder / "run/model.safetensors").read_bytes() == model


def test_lines_keep_their_places(folder: Path) -> None:
    text = "The dog barks .\n\n  \nIt sleeps .\n"
    first, *blank, last = parse(folder, text=text)
    assert blank == ["", ""]
    words = [next(read_trees([line], "out")).words() for line in (first, last)]
    assert words == [["The", "dog", "barks", "."], ["It", "sleeps", "."]]
    found = [json.loads(line) for line in parse(folder, "--json", text=text)]
    assert [one["tree"] for one in found] == [first, None, None, last]
    assert found[0]["confidence"] < 0
    assert found[0]["score"] < 0


def test_escape_sequences_stay_in_words(folder: Path) -> None:
    [line] = parse(folder, text="The \x1b[31mdog barks .\n")
    assert next(read_trees([line], "out")).words() == ["The", "\x1b[31mdog", "barks", "."]


def test_trees_are_drawn(folder: Path) -> None:
    drawing = parse(folder, "--draw", text="The dog barks .\n")
    assert "".join(drawing).count("The") == 1
    assert any("┌" in line for line in drawing)


def test_trees_over_several_lines_and_as_pictures(folder: Path, tmp_path: Path) -> None:
    sentences = ["The dog barks .", "The cat sleeps ."]
    text = "\n\n".join(sentences)
    pictures = tmp_path / "new" / "pictures"
    lines = parse(folder, "--pretty", f"--svg={pictures}", text=text)
    found = list(read_trees(lines, "stdout"))
    assert found == list(read_trees(parse(folder, text=text), "stdout"))
    assert [" ".join(tree.words()) for tree in found] == sentences
    assert sorted(path.name for path in pictures.iterdir()) == ["1.svg", "3.svg"]
    for path, sentence in zip(sorted(pictures.iterdir()), sentences, strict=True):
        title = ElementTree.parse(path).find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        assert title.text == sentence


def test_silver_trees_are_those_of_confidence_and_can_be_learned_from(folder: Path) -> None:
    lines = "".join(LINES.splitlines(keepends=True)[:20])
    every = [json.loads(line) for line in parse(folder, "--json", text=lines)]
    middle = sorted(one["confidence"] for one in every)[10]
    silver = parse(folder, f"--write-silver={middle}", text=lines.replace("\n", "\n\n"))
    wanted = [one for one in every if one["confidence"] >= middle]
    assert [line.split("\t")[1] for line in silver] == [one["tree"] for one in wanted]
    assert [float(line.split("\t")[0]) for line in silver] == pytest.approx(
        [one["confidence"] for one in wanted], abs=1e-4
    )
    (folder / "own.trees").write_text("".join(f"{line}\n" for line in silver), encoding="utf-8")
    again = forked(
        *("train", "-q", "--trees", folder / "dev.mrg", "--silver", folder / "own.trees"),
        *("--out", folder / "again", *TINY, "--set", "training.steps=1"),
        *("--set", "tokenizer.vocabulary=340"),
    )
    assert again.status == 0, again.stderr


def test_raw_text_is_cut_into_words(folder: Path) -> None:
    pytest.importorskip("nltk")
    result = regard("parse", folder / "run", stdin=b"The dog (it barks) can't sleep.\n")
    [tree] = read_trees(result.stdout.splitlines(), "out")
    words = ["The", "dog", "-LRB-", "it", "barks", "-RRB-", "ca", "n't", "sleep", "."]
    assert tree.words() == words


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--trees train.mrg --valid-trees dev.mrg", "run: was begun with other files of --silver:"),
        (
            "--trees train.mrg --silver silver.trees --silver-share 0.25",
            "run: was begun with other files of --valid-trees: choose another --out",
        ),
        (
            "--trees train.mrg --valid-trees dev.mrg --silver silver.trees --silver-share 0.5",
            "run: was begun with --silver-share 0.25: choose another --out",
        ),
        (
            "--trees dev.mrg --valid-trees dev.mrg --silver silver.trees --silver-share 0.25",
            "dev.mrg: this run was begun with another --trees: choose another --out",
        ),
    ],
)
def test_a_run_keeps_the_trees_it_was_begun_with(folder: Path, options: str, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert refused("train", *options.split(), "--out", "run").startswith(said)


def test_a_parser_is_not_taken_for_a_translator(folder: Path, world: World) -> None:
    said = refused("translate", folder / "run", stdin=GOOD.encode())
    advice = "use regard parse or regard.parsing.load, or name a translator"
    assert said == f"{folder / 'run'}: is a parser: {advice}"
    said = refused("look", folder / "run", "the dog")
    assert said == f"{folder / 'run'}: is a parser: look shows the attention of translators"
    said = refused("parse", world.made / "model", "--tokenised", stdin=GOOD.encode())
    assert (
        said == f"{world.made / 'model'}: is not a parser: use regard translate, or name a parser"
    )
    data = world.made / "data"
    for command in ("parse", "translate"):
        said = refused(command, data, stdin=GOOD.encode())
        assert said.startswith(
            f"{data}: is prepared data and not a model: train a model on it with regard train"
        )


def test_data_for_one_task_is_not_learned_from_for_the_other(folder: Path, world: World) -> None:
    for data, recipe, made in (
        (folder / "run/data", "small", "parsing, and the recipe is for translation"),
        (world.made / "data", "small-parse", "translation, and the recipe is for parsing"),
    ):
        said = refused("train", "--data", data, "--recipe", recipe, "--out", world.folder / "x")
        assert said.startswith(f"{data}: was prepared for {made}: ")
    form = ["--set", "task.form=normalised"]
    said = refused("train", "--data", folder / "run/data", *form, "--out", world.folder / "x")
    assert "was prepared for parsing, form tags, and the recipe is for parsing, form norm" in said


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ("train --task pars", "--task pars: it is translate or parse"),
        ("train --task parse", "x: nothing to train on yet: give --source and --target, --trees"),
        ("train --valid-trees t", "--valid-trees and --silver go with gold trees: give --trees"),
        ("train --trees t --silver-share 0.5", "--silver-share is the share of silver trees"),
        ("train --trees t --silver t --silver-share 1", "--silver-share 1.0: give a share between"),
        ("train --trees t --source s", "--trees is for parsing, --source and --target are for"),
        ("train --trees t --task translate", "--trees is for parsing"),
        ("train --trees missing.mrg", "missing.mrg: no such file"),
        ("train --task parse --source s --target s", "parsing is learned from trees: give --trees"),
        ("prepare --recipe small-parse --source s --target s", "parsing is learned from trees"),
        ("demo --task pars", "--task pars: it is translate or parse"),
    ],
)
def test_options_that_do_not_go_together(world: World, argv: str, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(world.folder)
        assert said in refused(*argv.split(), "--out", "x")
        assert not (world.folder / "x").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--draw", "--json"], "--pretty, --draw, --json and --write-silver exclude one another"),
        (["--precision", "half"], "precision half: it is fp32, bf16, int8, auto or fastest"),
        (["--beam", "1001"], "search.beam: input should be less than or equal to 1000"),
        (["--write-silver=nan"], "--write-silver nan: give a log p per word, such as -0.1"),
        (["--write-silver=0.1"], "--write-silver 0.1: give a log p per word, such as -0.1"),
    ],
)
def test_what_cannot_be_parsed(folder: Path, options: list[str], said: str) -> None:
    assert said in refused("parse", folder / "run", "--tokenised", *options, stdin=GOOD.encode())
