"""§6.1 BLEU, chrF and TER, against values worked by hand and recorded output of official tools."""

import json
import math
from pathlib import Path

import pytest
import typer
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest, Result
from typer.testing import CliRunner

from cli.refusing import refused, regard
from regard.cli.score import score as score_command
from regard.errors import DataError, MissingExtra
from regard.recipe import BleuTokenizer
from regard.score.bleu import bleu, compare_translations, score_translations

REFERENCE = ["the cat sat on the mat .", "a dog barked at the moon ."]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def test_a_perfect_translation() -> None:
    scores = score_translations(REFERENCE, [REFERENCE])
    assert scores.bleu == pytest.approx(100)
    assert scores.chrf == pytest.approx(100)
    assert scores.ter == 0


def test_bleu_by_hand() -> None:
    # Six of 7 words, 4 of 6 pairs, 2 of 5 triples, 1 of 4 quadruples; 7 words for 8.
    hypothesis, reference = "the cat sat on a mat .", "the cat sat on the big mat ."
    expected = 100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25 * math.exp(1 - 8 / 7)
    assert bleu([hypothesis], [[reference]]) == pytest.approx(expected)


def test_bleu_is_cased_and_splits_punctuation_itself() -> None:
    assert bleu(["The cat sat on the mat."], [["The cat sat on the mat ."]]) == pytest.approx(100)
    assert bleu(["the cat sat on the mat."], [["The cat sat on the mat."]]) < 100


def test_a_word_of_any_reference_counts() -> None:
    others = ["the cat lay on the mat .", "a dog howled at the moon ."]
    mixed = [REFERENCE[0], others[1]]
    one, two = (
        score_translations(mixed, [REFERENCE]),
        score_translations(mixed, [REFERENCE, others]),
    )
    assert one.bleu < two.bleu == pytest.approx(100)
    assert one.ter > two.ter == 0
    assert two.signatures["bleu"].startswith("nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|")


@pytest.mark.parametrize("tokenizer", ["zh", "char"])
def test_without_blanks_characters_are_the_words(tokenizer: BleuTokenizer) -> None:
    given, references = ["你好世界", "今天天气很好"], [["你好世間", "今天天气好"]]
    apart = [[" ".join(line) for line in lines] for lines in (given, *references)]
    expected = score_translations(apart[0], apart[1:], "none").bleu
    assert 20 < expected < 80
    assert score_translations(given, references, tokenizer).bleu == pytest.approx(expected)
    assert bleu(given, references, tokenizer) == pytest.approx(expected)


@pytest.mark.parametrize(("line", "words"), [("今天天气很好", 7), ("今日はとても良い天気です", 9)])
def test_ter_of_text_without_blanks_is_not_of_lines(line: str, words: int) -> None:
    given, references = [line], [[line + "。"]]
    scores = score_translations(given, references, "char")
    assert scores.ter == pytest.approx(100 / words)
    assert "|norm:yes|punct:yes|asian:yes|" in scores.signatures["ter"]
    [figure], signature = compare_translations([given], references, "char")["ter"]
    assert figure.score == scores.ter
    assert "|norm:yes|punct:yes|asian:yes|" in signature


def test_a_tokenizer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object, **__: object) -> None:
        raise RuntimeError("Please install the following package: mecab-ko")

    monkeypatch.setattr("regard.score.bleu.BLEU", missing)
    with pytest.raises(MissingExtra, match=r"pip install 'regard\[ko\]'"):
        bleu(REFERENCE, [REFERENCE], "ko-mecab")


def test_bleu_alone_is_the_bleu_of_score() -> None:
    hypotheses = ["a cat sat on a mat .", "a dog barked at noon ."]
    assert bleu(hypotheses, [REFERENCE]) == score_translations(hypotheses, [REFERENCE]).bleu


@pytest.mark.parametrize("scorer", [bleu, score_translations])
def test_misaligned_corpora_are_refused(scorer: object) -> None:
    assert callable(scorer)
    with pytest.raises(DataError, match="reference 2 has 1 sentence for 2 translations"):
        scorer(REFERENCE, [REFERENCE, REFERENCE[:1]])
    with pytest.raises(DataError, match="nothing to score"):
        scorer([], [[]])
    with pytest.raises(DataError, match="nothing to score"):
        scorer(REFERENCE, [])


@pytest.mark.data
def test_official_scores_of_small_corpora(regard_data: Path) -> None:
    cases = json.loads((regard_data / "oracles/bleu/edge/edge.json").read_text(encoding="utf-8"))
    assert cases["corpora"]
    for case in cases["corpora"]:
        scores = score_translations(case["hyp"], [case["ref"]])
        assert scores.bleu == pytest.approx(case["bleu_13a"]["score"], abs=1e-9), case["name"]
        assert scores.chrf == pytest.approx(case["chrf2"]["score"], abs=1e-9), case["name"]
        assert scores.ter == pytest.approx(case["ter"]["score"], abs=1e-9), case["name"]


@pytest.mark.data
def test_official_scores_of_a_real_test_set(regard_data: Path) -> None:
    folder = regard_data / "oracles/bleu/wmt15.en-fr"
    official = json.loads((folder / "bergamot-tiny/scores.json").read_text("utf-8"))["sacrebleu"]
    scores = score_translations(
        lines(folder / "bergamot-tiny/hyp.txt"), [lines(folder / "ref.txt")]
    )
    names = {"bleu": "bleu_13a", "chrf": "chrf2", "ter": "ter"}
    for field, name in names.items():
        assert getattr(scores, field) == pytest.approx(official[name]["score"], abs=1e-9)
        described, _, _ = official[name]["signature"].rpartition("|version:")
        assert scores.signatures[field].startswith(described + "|version:")


@pytest.mark.data
@pytest.mark.parametrize("system", ["bergamot-base-memory", "bergamot-tiny"])
def test_official_bleu_of_a_real_test_set(regard_data: Path, system: str) -> None:
    folder = regard_data / "oracles/bleu/wmt16.en-de"
    official = json.loads((folder / system / "scores.json").read_text("utf-8"))["sacrebleu"]
    found = bleu(lines(folder / system / "hyp.txt"), [lines(folder / "ref.txt")])
    assert found == pytest.approx(official["bleu_13a"]["score"], abs=1e-9)


class TestCommand:
    """`regard score`, called so that its errors are raised."""

    app = typer.Typer()
    app.command()(score_command)

    @pytest.fixture
    def files(self, tmp_path: Path) -> dict[str, str]:
        texts = {
            "hyp": b"a cat sat on a mat .\na dog barked at noon .\n",
            "ref": "\n".join(REFERENCE).encode(),
            "short": REFERENCE[0].encode(),
            "empty": b"",
            "latin": b"caf\xe9\n" + REFERENCE[0].encode(),
        }
        for name, text in texts.items():
            (tmp_path / name).write_bytes(text)
        return {name: str(tmp_path / name) for name in [*texts, "missing"]}

    def run(self, *arguments: str, given: bytes = b"") -> str:
        result = CliRunner().invoke(
            self.app, arguments, input=given, catch_exceptions=False, standalone_mode=False
        )
        return result.stdout

    def test_json_has_the_scores_and_their_signatures(self, files: dict[str, str]) -> None:
        shown = json.loads(self.run(files["hyp"], "--reference", files["ref"], "--json"))
        expected = score_translations(lines(Path(files["hyp"])), [REFERENCE])
        assert shown == {
            "bleu": expected.bleu,
            "chrf": expected.chrf,
            "ter": expected.ter,
            "signatures": expected.signatures,
        }

    def test_table_has_a_line_a_score(self, files: dict[str, str]) -> None:
        table = self.run(files["hyp"], "--reference", files["ref"])
        expected = score_translations(lines(Path(files["hyp"])), [REFERENCE])
        assert [line.split() for line in table.splitlines()] == [
            ["BLEU", f"{expected.bleu:.2f}", expected.signatures["bleu"]],
            ["chrF2", f"{expected.chrf:.2f}", expected.signatures["chrf"]],
            ["TER", f"{expected.ter:.2f}", expected.signatures["ter"]],
        ]

    def test_several_references(self, files: dict[str, str]) -> None:
        arguments = [files["hyp"], "-r", files["ref"], "-r", files["hyp"]]
        assert json.loads(self.run(*arguments, "--json"))["bleu"] == pytest.approx(100)

    def test_standard_input(self, files: dict[str, str]) -> None:
        given = Path(files["hyp"]).read_bytes()
        piped = self.run("-", "--reference", files["ref"], given=given)
        assert piped == self.run(files["hyp"], "--reference", files["ref"])

    @pytest.mark.parametrize(
        ("hypothesis", "reference", "sentence"),
        [
            ("hyp", "short", "short: has 1 line for the 2 of"),
            ("short", "hyp", "hyp: has 2 lines for the 1 of"),
            ("empty", "ref", "empty: is empty"),
            ("hyp", "empty", "empty: is empty"),
            ("missing", "ref", "missing: no such file"),
            ("hyp", "latin", "latin:1: is not UTF-8"),
        ],
    )
    def test_refusals_name_the_file(
        self, files: dict[str, str], hypothesis: str, reference: str, sentence: str
    ) -> None:
        with pytest.raises(DataError, match=sentence):
            self.run(files[hypothesis], "--reference", files[reference])

    def test_standard_input_is_not_read_twice(self) -> None:
        with pytest.raises(DataError, match="standard input: can be read only once"):
            self.run("-", "--reference", "-")


def test_text_without_blanks_is_asked_for_another_tokenizer(tmp_path: Path) -> None:
    text = tmp_path / "ref.zh"
    text.write_text("今天天气很好，我们去公园散步吧。\n" * 3, encoding="utf-8")
    argv = ("score", text, "--reference", text)
    fit, plain = regard(*argv, "--tokenizer", "zh"), regard(*argv)
    assert "tok:zh" in fit.stdout
    assert fit.stderr == ""
    assert "tok:13a" in plain.stdout
    assert f"{text}: has hardly any blanks" in plain.stderr
    assert refused(*argv, "--tokenizer", "jp").startswith("--tokenizer jp: it is 13a, intl, zh, ")


@pytest.mark.parametrize("seed", ["", "x", "-1", "0", "1.5"])
def test_a_seed_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", seed)
    with pytest.raises(DataError, match=f"SACREBLEU_SEED is '{seed}' in the environment: set"):
        compare_translations([REFERENCE], [REFERENCE])


def test_systems_are_compared_as_by_sacrebleu() -> None:
    references = [f"the dog number {i} sees a cat in the old house" for i in range(60)]
    good = [line if i % 4 else line.replace("old", "new") for i, line in enumerate(references)]
    bad = [
        line if i % 2 else line.replace("dog number", "cat") for i, line in enumerate(references)
    ]
    found = compare_translations([good, bad, good], [references])
    (first, second, third), signature = found["bleu"]
    assert first.score == pytest.approx(bleu(good, [references]))
    assert second.score == pytest.approx(bleu(bad, [references]))
    assert first.p is None
    assert second.p is not None
    assert second.p < 0.05
    assert third.p == pytest.approx(1.0, abs=0.01)  # the same translations
    low, high = first.interval
    assert 0 < high - low < 40
    better, worse, _ = found["ter"][0]
    assert worse.score > better.score
    assert signature.startswith("nrefs:1|bs:1000|seed:12345|")
    assert list(found) == ["bleu", "chrf", "ter"]
    with pytest.raises(DataError, match="each translation needs its own"):
        compare_translations([good, bad[1:]], [references])


def test_an_interval_has_the_percentiles_of_sacrebleu_s_samples() -> None:
    references = [f"the dog number {i} sees a cat in the old house" for i in range(12)]
    good = [*references[:11], "no word of it"]
    bad = ["no word of it", "nor of this", *references[2:]]
    systems = {"good": good, "bad": bad, "none": ["x"] * 12}
    found, _ = compare_translations([*systems.values()], [references])["bleu"]
    _, told = PairedTest([*systems.items()], {"bleu": BLEU()}, [references], "bs")()
    for figure, theirs in zip(found, told["BLEU"], strict=True):
        assert isinstance(theirs, Result)
        low, high = figure.interval
        assert 0 <= low <= figure.score <= high < 100.001
        assert (high - low) / 2 == pytest.approx(theirs.ci)
    assert found[0].interval[1] == pytest.approx(100)  # the mean is not in the middle
