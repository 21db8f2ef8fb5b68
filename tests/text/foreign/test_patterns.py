"""Which regular expressions surely end, and that those end which are said to."""

import pytest
from tokenizers import Regex, pre_tokenizers

from regard.text.foreign.patterns import KNOWN, surely_ends

GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
SAFE = [
    *KNOWN, GPT_2, " {2,}", r"\s+", "", "a|b|", r"\p{Han}", r"[^a-z\]]+", "(?i:abc)?d{3}",
    "(a|b)c+", r"(?<=\d)(?=\D)", "a{2,5}b", "x*?", "x++", r"\n", "é+", "(?:\\.|,)?[0-9]{1,3}",
]  # fmt: skip
REFUSED = [
    "(a+)+", "(a*)*b", "(a|a)*b", "(?:a|a)+", "a*a*", r"\s*\s+x", "(a{1,9}){1,9}", "(ab){2,}",
    "a?" * 30 + "a" * 30, "(a|a)" * 20, r"(a)\1+", r"\k<a>", r"(?<a>b)", r"\g<0>", "(?x: a + b)",
    "(a", "a)", "a{", "a{99999}", "a**", "*a", "[a", "[a[b]]", "[a&&b]", "[]a]", "\\",
    r"\p", r"\p{", r"\x41",
    "(*FAIL)", "(?#x)", "a" * 2000, "(?", "(?i)a", "a{,}", "a{x}", "a{2}?", "a{1,9}+",
    "a{1,2}{1,2}", "(" * 499 + "a" + ")" * 499,
]  # fmt: skip


@pytest.mark.parametrize("expression", SAFE)
def test_what_surely_ends_does(expression: str) -> None:
    assert surely_ends(expression)
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    for text in ("a" * 2000, " " * 2000, "aA1 .\n" * 300, "\n" * 2000, "'" * 2000):
        assert "".join(piece for piece, _ in split.pre_tokenize_str(text)) == text


@pytest.mark.parametrize("expression", REFUSED, ids=lambda expression: expression[:20])
def test_what_may_run_for_ever_or_is_not_understood(expression: str) -> None:
    assert not surely_ends(expression)
