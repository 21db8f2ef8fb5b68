"""The five scores of a report, against recorded output of multi-bleu.perl and of sacreBLEU."""

import json
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.bleu import BLEUScore

from regard.errors import DataError
from regard.score.bleu import compare_translations
from regard.score.report import (
    ALL_STEPS,
    MultiBleu,
    TextSteps,
    looks_tokenised,
    prepare_line,
    recognise,
    report_translations,
    score_by_steps,
)

REFERENCES = [f"The rich-text dog no. {i} sees „a“ cat in the old house, etc." for i in range(60)]
GOOD = [line if i % 4 else line.replace("old", "new") for i, line in enumerate(REFERENCES)]
BAD = [line if i % 2 else line.replace("dog", "cat") for i, line in enumerate(REFERENCES)]
FORMS: list[tuple[str, str, str, TextSteps]] = [
    ("bergamot-base-memory", "tokenizer_perl_tokenised", ".txt", ("tokenise",)),
    ("bergamot-tiny", "sacremoses_tokenised", ".tok", ()),
    ("bergamot-tiny", "sacremoses_compound_split", ".tok", ("split",)),
]


def lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def printed(found: Any) -> str:
    """A score as multi-bleu.perl prints it."""
    assert isinstance(found, BLEUScore)
    return (
        f"BLEU = {found.score:.2f}, {found.prec_str} (BP={found.bp:.3f}, ratio={found.ratio:.3f}, "
        f"hyp_len={found.sys_len}, ref_len={found.ref_len})"
    )


@pytest.mark.data
@pytest.mark.parametrize(("system", "form", "ending", "steps"), FORMS)
def test_official_scores_of_every_form(
    regard_data: Path, system: str, form: str, ending: str, steps: TextSteps
) -> None:
    folder = regard_data / "oracles/bleu/wmt15.en-fr"
    hypothesis = folder / system / "hyp.txt"
    official = json.loads((folder / system / "scores.json").read_text("utf-8"))["paper_pipeline"]
    texts = [lines(path.with_suffix(ending)) for path in (hypothesis, folder / "ref.txt")]
    found = MultiBleu("fr", steps).corpus_score(texts[0], [texts[1]])
    assert printed(found) == official[form]["multi_bleu_perl"]
    assert all(map(looks_tokenised, texts)) == (ending != ".txt")


@pytest.mark.data
@pytest.mark.parametrize("case", ["wmt15.en-de", "wmt13.en-fr"])
def test_official_scores_of_other_test_sets(regard_data: Path, case: str) -> None:
    folder = regard_data / "oracles/bleu" / case / "bergamot-tiny"
    official = json.loads((folder / "scores.json").read_text("utf-8"))["paper_pipeline"]
    found = MultiBleu(case[-2:]).corpus_score(
        lines(folder / "hyp.txt"), [lines(folder.parent / "ref.txt")]
    )
    assert printed(found) == official["tokenizer_perl_compound_split"]["multi_bleu_perl"]


@pytest.mark.data
def test_official_scores_of_small_corpora(regard_data: Path) -> None:
    cases = json.loads((regard_data / "oracles/bleu/edge/edge.json").read_text("utf-8"))["corpora"]
    assert {case["multi_bleu_perl"]["exit"] for case in cases} == {0, 255}
    for case in cases:
        found = MultiBleu("en", ()).corpus_score(case["hyp"], [case["ref"]])
        official = case["multi_bleu_perl"]
        expected = official["stdout"] if official["exit"] == 0 else "BLEU = 0.00, "
        assert printed(found).startswith(expected), case["name"]
        reported = {"only empty hypotheses", "no-break space", "double spaces and edge blanks"}
        if case["name"] in reported:
            scores = report_translations([case["hyp"]], [case["ref"]], "en", ())
            assert scores["bleu_paper"].figures[0].score == pytest.approx(found.score)
            for key in ("bleu_13a", "bleu_intl", "chrf2", "ter"):
                score = scores[key].figures[0].score
                assert score == pytest.approx(case[key]["score"], abs=1e-9), case["name"]


def test_words_end_at_blanks_of_ascii() -> None:
    text, apart = "1\xa0000 euros \u2003 a b c d", "1 000 euros a b c d"
    bleu = MultiBleu("en", ())
    assert bleu.corpus_score([text], [[text]]).sys_len == 7  # the wide blank is a word
    assert bleu.corpus_score([apart], [[apart]]).sys_len == 7
    assert bleu.corpus_score([text], [[apart]]).counts[0] == 5


def test_steps_are_done_in_their_order() -> None:
    line = "„Rich-text“, he said\xa0: no…"
    assert prepare_line(line, "en", ()) == line
    assert prepare_line(line, "en") == "„ Rich ##AT##-##AT## text “ , he said : no …"
    expected = '" Rich ##AT##-##AT## text , " he said : no ...'
    assert prepare_line(line, "en", ALL_STEPS) == expected
    assert prepare_line(line, "en", ("split", "tokenise", "normalise")) == expected


def test_each_score_says_what_it_is() -> None:
    found = report_translations([GOOD, BAD, GOOD], [REFERENCES], "en")
    assert list(found) == ["bleu_13a", "bleu_intl", "bleu_paper", "chrf2", "ter"]
    same = compare_translations([GOOD, BAD, GOOD], [REFERENCES])
    for key, old in (("bleu_13a", "bleu"), ("chrf2", "chrf"), ("ter", "ter")):
        assert (found[key].figures, found[key].signature) == same[old]
    assert "|tok:intl|smooth:exp|" in found["bleu_intl"].signature
    paper = found["bleu_paper"]
    assert "|case:mixed|eff:no|tok:moses-en-tokenise-split|smooth:none|" in paper.signature
    assert "27.3" in paper.meaning
    for one in found.values():
        first, worse, equal = one.figures
        assert one.meaning.endswith(".")
        low, high = first.interval
        assert low < first.score < high
        assert first.p is None
        assert worse.p is not None
        assert worse.p < 0.05
        assert equal.p == 1.0


def test_only_the_paper_s_own_steps_are_compared_with_it() -> None:
    for steps in ((), ("tokenise",), ALL_STEPS):
        meaning = report_translations([GOOD[:2]], [REFERENCES[:2]], "en", steps)["bleu_paper"]
        assert "27.3" not in meaning.meaning
    plain = [line.replace("„", '"').replace("“", '"') for line in REFERENCES]
    scores = score_by_steps(plain, [REFERENCES], "de")
    assert list(scores) == [
        "tokenise",
        "tokenise+split",
        "normalise+tokenise",
        "normalise+tokenise+split",
    ]
    assert scores["tokenise"] < scores["tokenise+split"] < 100
    assert scores["normalise+tokenise+split"] == pytest.approx(100)


def test_misaligned_texts_are_refused() -> None:
    with pytest.raises(DataError, match="each translation needs its own"):
        report_translations([GOOD, BAD[1:]], [REFERENCES], "en")


def test_text_that_looks_tokenised() -> None:
    assert looks_tokenised(["He sleeps .", "Where ?", "No. 5 sleeps ."])
    assert not looks_tokenised(["He sleeps.", "Où ?", "She sleeps .", "No."])
    assert not looks_tokenised(["Where ?", ""])


def test_test_sets_are_recognised_by_their_lines() -> None:
    assert recognise(3003) == (
        "3,003 lines: looks like newstest2014 in full; 2,737: the filtered one"
    )
    assert str(recognise(2737)).startswith("2,737 lines: looks like newstest2014, the filtered one")
    assert recognise(3000) is None
