"""Write a page in English or Korean: the paper's statements, and verdicts from our tables."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

from regard.files.whole import write_file
from regard.parts.markdown import markdown_table
from regard.parts.verdicts import ENGLISH, KOREAN, Judgement
from regard.reproduce.scales import Scale
from regard.reproduce.sentences import (
    PAPER_SENTENCES,
    Effect,
    Sentence,
    effect_of,
    judged_effect,
)
from regard.reproduce.tables import NONE, GrowingTable


class _Words(NamedTuple):
    """The words of a page in one language."""

    title: str
    opening: str
    learned: str
    """A sentence for models as large as the paper's: it names the training text."""
    learned_smaller: str
    """A sentence for smaller models: it names the text, and limits the verdicts to this size."""
    method: str
    head: tuple[str, ...]
    verdicts: Mapping[Judgement, str]
    unmeasured: str
    tables: str


_ENGLISH = _Words(
    "What reproduces, at scale {scale}",
    "The command `{command} --report FILE` wrote this page.",
    "Its models learn from {text}.",
    "Its models learn from {text}, and are far smaller than the paper's, so a verdict is about "
    "this size only.",
    "An effect is the figure of the row that should be higher less that of the other row, seed by "
    "seed, with its 95 % bounds (Student's t, each side); one seed has no bounds and decides "
    "nothing.",
    ("the paper says", "statement", "in the paper", "here", "sign", "verdict"),
    ENGLISH,
    "not measured yet",
    "The tables",
)
_KOREAN = _Words(
    "무엇이 재현되는가: {scale} 규모",
    "이 문서는 `{command} --report 파일` 명령으로 만들었다.",
    "모델은 {text}로 학습한다.",
    "모델은 {text}로 학습하고 논문의 모델보다 훨씬 작으므로, 판정은 이 크기에만 해당한다.",
    "효과는 진술대로라면 더 높아야 할 행의 값에서 다른 행의 값을 시드별로 뺀 차이의 평균이며, 95% "
    "한계(스튜던트 t, 위아래 각각 단측)를 함께 적는다. 시드가 하나이면 한계를 구할 수 없으므로 "
    '아무것도 판정하지 않는다. "표" 절의 내용은 명령이 출력하는 그대로 영어로 둔다.',
    ("논문의 문장", "진술", "논문에서", "여기서", "부호", "판정"),
    KOREAN,
    "아직 측정하지 않음",
    "표",
)


def write_report(
    path: Path, scale: Scale, command: str, tables: Mapping[str, GrowingTable]
) -> None:
    """Write a page: the paper's sentences about its tables, with verdicts; then the tables.

    The page is in Korean if the name of the file `path` ends in .ko.md, else in English. `command`
    is the command that made the tables, without --report. `tables` has the tables by the names of
    their experiments, such as "table3". Raises RegardError if the file cannot be written.
    """
    words = _KOREAN if path.name.endswith(".ko.md") else _ENGLISH
    text = scale.korean if words is _KOREAN else scale.text
    names = {"command": command, "scale": scale.name, "text": text}
    learned = words.learned if scale.name == "paper" else words.learned_smaller
    opening = " ".join((words.opening, learned, words.method)).format(**names)
    values = {name: table.values for name, table in tables.items()}
    rows, before = [], ""
    for sentence in PAPER_SENTENCES:
        quote = "" if sentence.quote == before else f'§{sentence.section}: "{sentence.quote}"'
        rows.append((quote, *_told(words, sentence, effect_of(sentence, values))))
        before = sentence.quote
    parts = [
        f"# {words.title.format(**names)}\n\n{_filled(opening)}\n",
        markdown_table(words.head, rows),
        f"## {words.tables}\n",
        *(_section(table) for table in tables.values()),
    ]
    write_file(path, "\n".join(parts))


def _told(words: _Words, sentence: Sentence, effect: Effect | None) -> tuple[str, ...]:
    statement = sentence.korean if words is _KOREAN else sentence.english
    if effect is None:
        return (statement, NONE, NONE, NONE, words.unmeasured)
    form = ".1e" if sentence.number == "counted_flop" else ".2f"
    low, high = effect.interval
    between = "" if math.isinf(low) else f" ({low:+{form}} … {high:+{form}})"
    printed = NONE if effect.printed is None else f"{effect.printed:+.2f}"
    sign = "0" if effect.mean == 0 else "+" if effect.mean > 0 else "−"
    verdict = words.verdicts[judged_effect(sentence, effect)]
    return (statement, printed, f"{effect.mean:+{form}}{between}", sign, verdict)


def _section(table: GrowingTable) -> str:
    notes = "".join(f"\n{_filled(note)}\n" for note in table.notes)
    return f"### {table.title}\n\n{markdown_table(table.head, table.rows)}{notes}"


def _filled(text: str) -> str:
    """The text in lines of at most 108 characters; a longer word gets a line of its own."""
    return fill(" ".join(text.split()), 108, break_long_words=False, break_on_hyphens=False)
