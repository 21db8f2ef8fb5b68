"""Certificates of two sentences and short outputs, for tests that make many."""

from typing import Any

import pytest

from regard.exchange import certificate as certificates
from regard.exchange import exporting, importing
from regard.exchange.certificate import Certificate, certify

SOME = ["The dog sleeps because it is tired.", "Ω 12 x!"]


@pytest.fixture
def brief_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    make_brief(monkeypatch)


def make_brief(patch: pytest.MonkeyPatch) -> None:
    """Have certificates made from few sentences until the patch is undone."""

    def brief(ours: Any, theirs: Any, *_: Any, **about: Any) -> Certificate:
        return certify(ours, theirs, SOME, **about)

    for module in (importing, exporting):
        patch.setattr(module, "certify", brief)
    patch.setattr(certificates, "WRITTEN", 12)
