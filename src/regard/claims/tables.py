"""The outcome of claims as a table: in Markdown, in JSON, and in pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.claims.parts import Claim, Size
from regard.parts.markdown import markdown_table
from regard.parts.verdicts import Judgement, Statement, overall

_HEAD = ("claim", "the paper says", "statement", "what came out", "verdict")
_MARKED = re.compile(r"^(.*<!-- ([\w-]+)/([\w.-]+) -->).*$", re.MULTILINE)
"""Matches a table row with a mark `<!-- claim/finding -->`; `filled` replaces the text after the
mark."""


@dataclass(frozen=True)
class Outcome:
    """A claim and its findings: statements with figures and verdicts."""

    claim: Claim
    findings: tuple[Statement, ...]

    @property
    def verdict(self) -> Judgement:
        """The verdict of the claim, which follows from the verdicts of its statements."""
        return overall(self.findings)


def table_rows(outcomes: Sequence[Outcome]) -> list[tuple[str, str, str, str, str]]:
    """One row for each finding: claim with section, the paper's words, statement, figures, verdict.

    Only the first row of a claim names the claim and quotes the paper; in the other rows, these
    two cells are empty.
    """
    return [
        (
            f"{one.claim.name} (§{one.claim.section})" * first,
            f'"{one.claim.quote}"' * first,
            finding.statement,
            str(finding),
            str(finding.verdict),
        )
        for one in outcomes
        for first, finding in zip([True, *[False] * len(one.findings)], one.findings, strict=False)
    ]


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The findings of the claims as a Markdown table."""
    return markdown_table(_HEAD, table_rows(outcomes))


def result_json(outcomes: Sequence[Outcome], seeds: Sequence[int], size: Size) -> dict[str, Any]:
    """The content of result.json, as JSON values.

    The content is the seeds, the size of the trainings, and the claims with figures and verdicts.
    """
    claims = [
        {
            "name": one.claim.name,
            "section": one.claim.section,
            "quote": one.claim.quote,
            "verdict": str(one.verdict),
            "findings": [_finding_json(finding) for finding in one.findings],
        }
        for one in outcomes
    ]
    return {"seeds": list(seeds), "size": size._asdict(), "claims": claims}


def _finding_json(finding: Statement) -> dict[str, Any]:
    figures = [
        {"label": f.label, "values": list(f.values), "mean": f.mean, "spread": f.spread,
         "text": str(f)}
        for f in finding.figures
    ]  # fmt: skip
    return {
        "name": finding.name,
        "statement": finding.statement,
        "figures": figures,
        "verdict": str(finding.verdict),
    }


def filled(page: str, result: Mapping[str, Any], words: Mapping[Judgement, str]) -> str:
    """The page, with the figures and verdicts of `result` written into the marked rows.

    `result` is the content of result.json, and `words` are the verdicts in the page's language. A
    marked row whose finding has not been measured gets dashes for the figures and the verdict.
    """
    found = {
        (claim["name"], finding["name"]): finding
        for claim in result["claims"]
        for finding in claim["findings"]
    }

    def row(match: re.Match[str]) -> str:
        finding = found.get((match[2], match[3]))
        if finding is None:
            return f"{match[1]} – | – |"
        figures = "; ".join(figure["text"] for figure in finding["figures"])
        return f"{match[1]} {figures} | {words[Judgement(finding['verdict'])]} |"

    return _MARKED.sub(row, page)
