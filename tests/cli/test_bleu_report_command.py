"""`regard score --report` as users run it."""

import json
from pathlib import Path

import pytest

from cli.refusing import refused, regard
from regard.cli.bleu_report import chosen_language
from regard.score.report import report_translations, score_by_steps

REFERENCES = [f"Der E-Mail-Hund Nr. {i} sieht eine Katze im Haus." for i in range(30)]
GOOD = [line if i % 4 else line.replace("Haus", "Hof") for i, line in enumerate(REFERENCES)]
BAD = [line if i % 2 else line.replace("Katze", "Maus") for i, line in enumerate(REFERENCES)]
KEYS = ["bleu_13a", "bleu_intl", "bleu_paper", "chrf2", "ter"]


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, str]:
    written = {"good.de": GOOD, "bad.de": BAD, "ref.de": REFERENCES, "ref.txt": REFERENCES}
    for name, lines in written.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {name: str(tmp_path / name) for name in written}


def test_json_has_every_score_and_its_comparisons(texts: dict[str, str]) -> None:
    good, bad, reference = texts["good.de"], texts["bad.de"], texts["ref.de"]
    asked = ("score", good, "-r", reference, "--report", "--against", bad)
    done = regard(*asked, "--json")
    assert (done.status, done.stderr) == (0, "")
    shown = json.loads(done.stdout)
    assert list(shown) == ["lines", "hint", *KEYS]
    assert (shown["lines"], shown["hint"]) == (30, None)
    expected = report_translations([GOOD, BAD], [REFERENCES], "de")
    for key, one in expected.items():
        first, other = one.figures
        assert shown[key]["score"] == first.score
        assert shown[key]["interval"] == list(first.interval)
        assert shown[key]["signature"] == one.signature
        assert shown[key]["meaning"] == one.meaning
        versus = {"score": other.score, "interval": list(other.interval), "p": other.p}
        assert shown[key]["versus"] == {bad: versus}
    assert shown["bleu_paper"]["by_steps"] == score_by_steps(GOOD, [REFERENCES], "de")
    table = regard(*asked).stdout
    for key, one in expected.items():
        assert f"{key}\n  {one.meaning}\n  {one.signature}\n" in table
        assert f"  {bad}  p = {one.figures[1].p:.3f}\n" in table


def test_another_tokenizer_is_a_sixth_score(texts: dict[str, str]) -> None:
    asked = ("score", texts["good.de"], "-r", texts["ref.de"], "--json", "--tokenizer", "char")
    shown, alone = (json.loads(regard(*asked, *more).stdout) for more in (["--report"], []))
    assert list(shown) == ["lines", "hint", "bleu_char", *KEYS]
    assert shown["bleu_char"]["score"] == alone["bleu"]
    assert "|tok:char|" in shown["bleu_char"]["signature"]
    assert "divides by char" in shown["bleu_char"]["meaning"]
    assert shown["bleu_13a"]["score"] != alone["bleu"]


def test_the_language_is_the_ending_s_or_german(texts: dict[str, str]) -> None:
    def signature(*arguments: str) -> tuple[str, str]:
        done = regard("score", texts["good.de"], "--report", "--json", *arguments)
        assert done.status == 0, done.stderr
        return json.loads(done.stdout)["bleu_paper"]["signature"], done.stderr

    found, said = signature("-r", texts["ref.de"])
    assert "tok:moses-de-" in found
    assert said == ""
    for ending in (".gz", ".xz", ".zst"):
        assert chosen_language(None, Path(f"ref.fr{ending}")) == "fr"
    found, said = signature("-r", texts["ref.txt"])
    assert "tok:moses-de-" in found
    assert "takes the text for German" in said
    found, said = signature("-r", texts["ref.de"], "--language", "fr")
    assert "tok:moses-fr-" in found
    assert said == ""
    found, said = signature("-r", texts["ref.de"], "--language", "xx")
    assert "tok:moses-xx-" in found
    assert "takes those of English" in said


def test_tokenised_text_is_scored_as_it_stands(texts: dict[str, str], tmp_path: Path) -> None:
    words = tmp_path / "ref.tok.de"
    words.write_text("\n".join(line[:-1] + " ." for line in REFERENCES), encoding="utf-8")
    done = regard("score", words, "-r", words, "--report", "--json")
    assert "looks tokenised" in done.stderr
    assert "|tok:none|smooth:none|" in json.loads(done.stdout)["bleu_paper"]["signature"]
    mixed = regard("score", words, "-r", texts["ref.de"], "--report", "--json")
    assert "some texts look tokenised and some do not" in mixed.stderr
    asked = regard("score", words, "-r", words, "--report", "--json", "--steps", "split,normalise")
    assert asked.stderr == ""
    signature = json.loads(asked.stdout)["bleu_paper"]["signature"]
    assert "|tok:moses-de-normalise-split|" in signature


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--language", "de"), "--language and --steps are for bleu_paper: add --report"),
        (("--report", "--language", "German"), "--language German: it is a code of two or three"),
        (("--report", "--steps", "tokenize"), "unknown step tokenize: did you mean tokenise?"),
        (("--report", "--steps", "x,split"), "unknown step x: it is one of normalise, tokenise"),
        (
            ("--report", "--steps", "tokenise,none"),
            "--steps: none goes with no other step",
        ),
        (("--report", "--tokenizer", "jp"), "--tokenizer jp: it is 13a, intl, zh, "),
        (
            ("--report", "--tokenizer", "none"),
            "--tokenizer none: its BLEU has no place in --report",
        ),
        (("--report", "--language", "kr"), "kr is the code of a country: the code of Korean is ko"),
        (("--report", "--model", "m"), "--report, --against and --interval go with a --reference"),
    ],
)
def test_refusals(texts: dict[str, str], options: tuple[str, ...], sentence: str) -> None:
    assert refused("score", texts["good.de"], "-r", texts["ref.de"], *options).startswith(sentence)
