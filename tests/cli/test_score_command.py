"""`regard score --model` as users run it."""

import json
from pathlib import Path
from unicodedata import normalize

import pytest

from cli.refusing import World, refused, regard
from regard.measure.likelihood import likelihoods
from regard.translation import load


def test_each_line_tells_how_likely_a_translation_is(world: World) -> None:
    model, (_, source, _, target) = world.made / "model", world.text
    rows = regard("score", target, "--model", model, "--source", source)
    assert rows.status == 0, rows.stderr
    assert rows.stderr.startswith("perplexity ")
    said = regard("score", target, "--model", model, "--source", source, "--json").stdout
    shown = [json.loads(line) for line in said.splitlines()]
    texts = (Path(path).read_text("utf-8").splitlines() for path in (source, target))
    expected = list(likelihoods(load(model), *texts))
    assert [(one["score"], one["log_p"], one["pieces"]) for one in shown] == [
        pytest.approx((one.score, one.log_probability, one.pieces)) for one in expected
    ]
    assert rows.stdout.splitlines() == [
        f"{one.score:.4f}\t{one.log_probability:.4f}\t{one.pieces}" for one in expected
    ]


def test_options_that_do_not_go_together(world: World) -> None:
    both = "--model goes with --source, and without --reference"
    text = world.write("a", "one\n")
    assert refused("score", text, "--model", world.made / "model") == both
    assert refused("score", text, "--source", text, "--reference", text) == both
    longer = world.write("b", "one\ntwo\n")
    said = refused("score", text, "--model", world.made / "model", "--source", longer)
    assert said.startswith(f"{text}: has 1 line for the 2 of {longer}: give one line for each")


def test_standard_input_is_named_so(world: World) -> None:
    text = world.write("a", "one\n")
    model = ["--model", world.made / "model", "--source"]
    assert refused("score", "-", "-r", text) == (
        "standard input: is empty: there is nothing to score"
    )
    assert refused("score", "-", "-r", text, stdin=b"1\n2\n").startswith(
        f"{text}: has 1 line for the 2 of standard input: "
    )
    long = ("the dog " * 50).encode()
    assert refused("score", "-", *model, text, stdin=long).startswith("standard input:1: ")
    assert refused("score", text, *model, "-", stdin=long).startswith("standard input:1: ")


def test_two_systems_are_compared(world: World) -> None:
    lines = [f"the dog {i} sees the old cat in the house\n" for i in range(30)]
    reference = world.write("ref", "".join(lines))
    good = world.write("good", "".join(lines[:25] + ["the cat\n"] * 5))
    bad = world.write("bad", "".join(lines[:5] + ["the cat\n"] * 25))
    result = regard("score", good, "--reference", reference, "--against", bad)
    assert result.status == 0, result.stderr
    shown = result.stdout.splitlines()
    assert [line.split()[0] for line in shown[::3]] == ["BLEU", "chrF2", "TER"]
    assert str(good) in shown[1]
    assert " p = 0.0" in shown[2]
    options = ("--reference", reference, "--interval", "--json")
    alone = json.loads(regard("score", good, *options).stdout)
    assert alone["systems"][0]["bleu"]["p"] is None
    first = alone["systems"][0]["bleu"]
    low, high = first["interval"]
    assert shown[1] == f"  {first['score']:6.2f}  [{low:.2f}, {high:.2f}]  {good}"
    short = world.write("short", "one\n")
    assert "has 1 line for the 30" in refused("score", good, "-r", reference, "--against", short)


def test_people_are_told_of_words_and_letters_that_bleu_takes_amiss(world: World) -> None:
    korean = "나는 어제 도서관에서 책을 읽었다.\n" * 20
    composed = world.write("out.ko", korean)
    apart = world.write("ref.ko", normalize("NFD", korean))
    result = regard("score", composed, "--reference", apart)
    assert result.status == 0
    assert f"{apart}: is Korean, whose particles stay joined to words" in result.stderr
    assert f"{apart}: 100% of its lines are not in Unicode's form NFC" in result.stderr
    quiet = regard("score", composed, "--reference", composed, "--tokenizer", "char")
    assert (quiet.status, quiet.stderr) == (0, "")
    japanese = world.write("ref.ja", "彼は本を読んだ。\n" * 20 + "안녕\n")
    for tokenizer in ("13a", "intl"):
        said = regard("score", japanese, "-r", "-", "--tokenizer", tokenizer, stdin=b"x\n" * 21)
        assert said.stderr == ""
        said = regard("score", "-", "-r", japanese, "--tokenizer", tokenizer, stdin=b"x\n" * 21)
        assert f"{japanese}: has hardly any blanks" in said.stderr
    german = world.write("ref.de", "Ein Mädchen hört Müllers Töne.\n" * 20)
    assert regard("score", german, "--reference", german).stderr == ""
