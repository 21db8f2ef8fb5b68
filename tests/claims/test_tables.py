"""The outcome of claims as Markdown, as JSON, and in the rows of the documentation."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

from regard.claims.parts import Evidence, Size
from regard.claims.registry import CLAIMS
from regard.claims.tables import Outcome, filled, markdown, result_json
from regard.parts.verdicts import ENGLISH, KOREAN, Judgement

DOCS = Path(__file__).parents[2] / "docs"
KEPT = Path(__file__).parents[2] / "experiments" / "claims" / "result.json"
SEEDS = (1, 2, 3)


def outcome(base: tuple[float, ...], other: tuple[float, ...]) -> Outcome:
    numbers = {
        (name, seed): {"bleu": value, "train_perplexity": 100 - value}
        for name, values in (("base", base), ("no-mask", other))
        for seed, value in zip(SEEDS, values, strict=True)
    }
    claim = CLAIMS["mask"]
    return Outcome(claim, tuple(claim.judge(Evidence(numbers, SEEDS))))


def test_markdown_has_a_row_for_each_statement() -> None:
    one = outcome((50, 51, 52), (1, 1, 1))
    lines = markdown([one]).splitlines()
    assert len(lines) == 2 + 2
    assert lines[2].startswith('| mask (§3.2.3) | "We need to prevent leftward')
    assert lines[3].endswith("| base: 51.0 ± 1.0; no-mask: 1.0 ± 0.0 | holds |")
    assert {line.count(" | ") for line in lines} == {4}


def test_json_has_the_value_of_each_seed() -> None:
    result = json.loads(json.dumps(result_json([outcome((50, 51, 52), (1, 1, 1))], SEEDS, Size())))
    [claim] = result["claims"]
    assert claim["verdict"] == "does not hold here"  # perplexity in training is higher here
    decoding = claim["findings"][1]
    assert decoding["verdict"] == "holds"
    figure = {"label": "base", "values": [50, 51, 52], "mean": 51, "spread": 1}
    assert decoding["figures"][0] == figure | {"text": "base: 51.0 ± 1.0"}


def test_marked_rows_are_filled_in() -> None:
    result = result_json([outcome((50, 51, 52), (1, 1, 1))], SEEDS, Size())
    page = "text\n| 마스크 | <!-- mask/decoding --> old | old |\n"
    expected = (
        "text\n| 마스크 | <!-- mask/decoding --> base: 51.0 ± 1.0; no-mask: 1.0 ± 0.0 | 성립 |\n"
    )
    assert filled(page, result, KOREAN) == expected
    assert filled(expected, result, KOREAN) == expected
    assert marked(page) == [("mask", "decoding")]
    unknown = filled(page.replace("decoding", "unmeasured"), result, ENGLISH)
    assert unknown == "text\n| 마스크 | <!-- mask/unmeasured --> – | – |\n"


def marked(page: str) -> list[tuple[str, str]]:
    """The claim and the finding of each marked row of a page."""
    return re.findall(r"<!-- ([\w-]+)/([\w.-]+) -->", page)


def all_statements() -> dict[tuple[str, str], str]:
    """The statement of each finding that any claim may have."""

    class AnyNumbers(dict[tuple[str, int], dict[str, float]]):
        def __missing__(self, _: object) -> dict[str, float]:
            return defaultdict(lambda: 1.0)

    return {
        (claim.name, finding.name): finding.statement
        for claim in CLAIMS.values()
        for finding in claim.judge(Evidence(AnyNumbers(), SEEDS))
    }


@pytest.mark.parametrize(("page", "words"), [("claims.md", ENGLISH), ("claims.ko.md", KOREAN)])
def test_the_documentation_has_the_kept_figures(page: str, words: dict[Judgement, str]) -> None:
    text, result = (DOCS / page).read_text("utf-8"), json.loads(KEPT.read_text("utf-8"))
    assert filled(text, result, words) == text
    assert marked(text) == list(all_statements())


def test_the_documentation_has_the_statements_and_quotes() -> None:
    pages = [(DOCS / page).read_text("utf-8") for page in ("claims.md", "claims.ko.md")]
    for (claim, finding), statement in all_statements().items():
        assert f"| {statement} | <!-- {claim}/{finding} -->" in pages[0]
    for claim in CLAIMS.values():
        quoted = f'§{claim.section}: "{claim.quote}"'
        assert all(quoted in " ".join(page.split()) for page in pages)
