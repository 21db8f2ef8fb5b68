"""`regard look` as users run it: every kind of output, and what it refuses."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from cli.refusing import World, contents, forked, refused, regard, unchanged
from regard.families.choose import new_model
from regard.run.model_directory import open_model, write_model

SENTENCE = "the dog sees the cat"
TARGET = "Hund sieht Katze"


def looked(world: World, *arguments: str | Path) -> str:
    """Standard output of a look at the sentence, run in the test's folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(world.folder)
        result = regard("look", world.made / "model", SENTENCE, *arguments)
    assert result.status == 0, result
    return result.stdout


def test_a_page_if_nothing_is_asked_for(world: World) -> None:
    said = looked(world)
    page = (world.folder / "look.html").read_text("utf-8")
    assert page.startswith("<!doctype html>")
    assert f"Attention: {SENTENCE}" in page
    translated = regard("translate", world.made / "model", stdin=f"{SENTENCE}\n".encode()).stdout
    assert said.split() == translated.split()


def test_a_page_opens_where_it_is_asked_to(world: World) -> None:
    looked(world, "--kind", "decoder", "--layer", "1", "--head", "2", "--word", "1")
    page = (world.folder / "look.html").read_text("utf-8")
    [first] = re.findall(r'"first":(\{.*?\}\})', page)
    held = {"side": "left", "place": 0}
    assert json.loads(first) == {"kind": "decoder", "layer": 0, "heads": [1], "pinned": held}
    assert refused("look", world.made / "model", SENTENCE, "--word", "elephant").startswith(
        "unknown word elephant"
    )


def test_everything_at_once(world: World) -> None:
    before = contents(world.folder)
    said = looked(
        world, "--target", TARGET, "--html", "a.html", "--npz", "a.npz", "--json", "a.json",
        "--figure", "5", "--out", "a.pdf", "--text", "--by-words",
    )  # fmt: skip
    made = contents(world.folder).keys() - before.keys()
    assert made == {"a.html", "a.npz", "a.json", "a.pdf"}
    assert said.startswith(f"{TARGET}\n\nencoder-decoder attention, layer 1, heads 1, 2\n")
    everything = json.loads((world.folder / "a.json").read_text("utf-8"))
    assert everything["written"] == [*TARGET.split(), "</s>"]
    with np.load(world.folder / "a.npz", allow_pickle=False) as arrays:
        assert arrays["source"].tolist() == [*SENTENCE.split(), "</s>"]
        for kind in ("encoder", "decoder", "cross"):
            weights = arrays[f"{kind}_attention"]
            np.testing.assert_allclose(weights, everything["attention"][kind], atol=1e-6)
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)


def test_escape_sequences_stay_in_a_translation(world: World) -> None:
    assert looked(world, "--target", "\x1b[31mHund") == "\x1b[31mHund\n"


def test_json_alone_on_standard_output(world: World) -> None:
    result = forked("look", world.made / "model", SENTENCE, "--json", "-", "--search")
    assert result.stderr == ""
    steps = json.loads(result.stdout)["search"]["steps"]
    assert {len(step) for step in steps} == {4}  # 2 x a beam of 2


def test_the_search_as_text(world: World) -> None:
    said = looked(world, "--search")
    assert "\nstep 1\n" in said
    assert "won with" in said.splitlines()[-1]
    assert not (world.folder / "look.html").exists()


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_figures(world: World, form: str) -> None:
    looked(world, "--figure", "4", "--word", "dog", "--by-words", "--out", f"x.{form}")
    begins = {"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[form]
    assert (world.folder / f"x.{form}").read_bytes().startswith(begins)


def test_figures_of_the_model_need_no_sentence(world: World) -> None:
    before = contents(world.folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(world.folder)
        for arguments in (["--figure", "1"], ["--figure", "2", "--out", "x.pdf"]):
            result = regard("look", world.made / "model", *arguments)
            assert result.status == 0 and not result.stdout, result
    made = contents(world.folder)
    assert made.keys() - before.keys() == {"figure-1.svg", "x.pdf"}
    count = open_model(world.made / "model").network.parameter_count
    assert f">{count:,}</text>" in (world.folder / "figure-1.svg").read_text("utf-8")


def test_a_figure_of_the_model_beside_a_sentence(world: World) -> None:
    looked(world, "--figure", "1", "--out", "a.svg", "--html", "a.html")
    assert (world.folder / "a.html").exists()
    assert "Multi-Head Attention" in (world.folder / "a.svg").read_text("utf-8")


def test_nothing_is_written_beside_a_figure_of_another_family(world: World) -> None:
    model = world.folder / "recurrent"
    recipe = [*world.recipe, "--set", "model.family=recurrent", "--set", "model.layers=2"]
    recipe += ["--set", "data.layout=grouped"]
    assert regard("train", "-q", *world.text, *recipe, "--out", model).status == 0
    page = world.folder / "x.html"
    with unchanged(world.folder):
        said = refused("look", model, "dog", "--figure", "1", "--html", page)
    assert said == "--figure 1 draws a Transformer; this model is of another family"


def test_a_word_by_its_place(world: World) -> None:
    looked(world, "--figure", "3", "--word", "dog", "--by-words", "--out", "a.svg")
    looked(world, "--figure", "3", "--word", "2", "--by-words", "--out", "b.svg")
    looked(world, "--figure", "3", "--word", "3", "--by-words", "--out", "c.svg")
    pictures = [(world.folder / f"{name}.svg").read_bytes() for name in "abc"]
    assert pictures[0] == pictures[1] != pictures[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["", "--text"], "the sentence is empty: give some text"),
        (["dog", "--target", " "], "the translation is empty: give some text"),
        (["dog " * 99], "the sentence has "),
        (["dog", "--target", "Hund " * 99], "the translation has "),
        (["dog", "--kind", "self"], "--kind self: it is encoder, decoder or cross"),
        (["dog", "--text", "--layer", "2"], "--layer 2: this model has 1"),
        (["dog", "--text", "--head", "3"], "--head 3: this model has 2"),
        (["dog", "--figure", "6"], "invalid value for --figure"),
        ([], "no sentence: give one after the model"),
        (["--figure", "3", "--word", "dog"], "no sentence: give one after the model"),
        (["--figure", "1", "--text"], "no sentence: give one after the model"),
        (["--figure", "1", "--layer", "1"], "no sentence: give one after the model"),
        (["--figure", "2", "--out", "x.gif"], "a figure ends in .svg, .png or .pdf"),
        (["dog", "--figure", "3"], "--figure 3 shows one word: give it with --word"),
        (
            ["dog", "--npz", "x.npz", "--figure", "3", "--word", "dg", "--by-words"],
            "unknown word dg: did you mean dog",
        ),
        (["dog", "--figure", "3", "--word", "9" * 5000], "unknown word 999"),
        (["dog", "--figure", "5", "--out", "x.gif"], "a figure ends in .svg, .png or .pdf"),
        (["dog", "--out", "x.svg"], "it is for --figure; a page is --html FILE"),
        (["dog", "--search", "--target", "Hund"], "--search: with --target there is no search"),
        (["dog", "--json", "-", "--layer", "1"], "--layer: it is for --html, --text and Figures"),
        (["dog", "--npz", "x.npz", "--head", "2"], "--head: it is for --html, --text and Figures"),
        (["dog", "--search", "--kind", "cross"], "--kind: it is for --html, --text and Figures"),
        (["dog", "--json", "-", "--text"], "--json - and --text both write to standard output"),
        (["dog", "--html", "-"], "only --json writes to standard output (-): give --html and"),
        (["dog", "--npz", "-"], "only --json writes to standard output (-)"),
        (["dog", "--html", "x", "--npz", "./x"], "two of --html, --out, --npz and --json name"),
        (["dog", "--html", "figure-5.svg", "--figure", "5"], "two of --html, --out, --npz and"),
        (["dog", "--html", "nowhere/x.html"], "nowhere/x.html: cannot write: "),
        (["dog", "--npz", "nowhere/x.npz"], "nowhere/x.npz: cannot write: "),
        (["dog", "--threads", "9999"], "--threads 9999: give up to 1024 cores"),
    ],
)
def test_refused(world: World, arguments: list[str], said: str) -> None:
    with pytest.MonkeyPatch.context() as patch, unchanged(world.folder):
        patch.chdir(world.folder)
        assert said in refused("look", world.made / "model", *arguments)


def test_no_model(world: World) -> None:
    with unchanged(world.folder):
        assert "no such model directory" in refused("look", world.folder / "none", "dog")


def test_without_matplotlib(world: World) -> None:
    with pytest.MonkeyPatch.context() as patch, unchanged(world.folder):
        patch.chdir(world.folder)
        patch.setitem(__import__("sys").modules, "matplotlib", None)
        said = refused("look", world.made / "model", "dog", "--figure", "5")
    assert said == "--figure needs an extra: pip install 'regard[view]'"


def test_layers_are_those_of_the_attention_that_is_shown(world: World) -> None:
    """A heat map shows encoder-decoder attention by default, a page the encoder's."""
    model = open_model(world.made / "model")
    recipe, deep = model.recipe.set("model.decoder_layers=2"), world.folder / "deep"
    network = new_model(recipe.model, model.tokenizer.size)
    weights = {name: weight.detach() for name, weight in network.named_parameters()}
    write_model(deep, recipe, model.tokenizer, weights, {})
    shown = regard("look", deep, "dog", "--text", "--layer", "2")
    assert "\nencoder-decoder attention, layer 2, heads" in shown.stdout, shown
    page = world.folder / "x.html"
    for arguments in (["--html", page], ["--html", page, "--text"], ["--text", "--layer", "3"]):
        with unchanged(world.folder):
            layer = [] if "--layer" in arguments else ["--layer", "2"]
            said = refused("look", deep, "dog", *arguments, *layer)
        assert re.fullmatch(r"--layer \d: this model has \d", said)
