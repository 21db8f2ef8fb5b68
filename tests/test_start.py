"""What a run begins with: the table in the docstring of `regard.start`, tried in every way.

Each row is tested with every combination of what can be given for which it is the first that fits.
"""

import dataclasses
import math
import re
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import regard
import regard.start
from regard.budget.choice import NO_LIMIT, Choice, choose
from regard.budget.text import ParallelText, rule_of_times
from regard.corpus import write_treebank
from regard.data.pairs import DECIDED, Pairs, recipe_of
from regard.errors import DataError, ModelError, RecipeError, RegardError, TrainingError
from regard.inputs import TrainingFiles, prepare_files
from regard.presets import SMALL_PARSE
from regard.recipe import Recipe
from regard.run.averaging import average_run
from regard.run.beginning import keep_beginning, refuse_another_recipe
from regard.run.finetuning import keep_origin, open_origin
from regard.start import MINUTES, Start, begin, decide
from regard.text.tokenizer import Tokenizer, TokenizerKind

TEXT = Recipe().but(
    layers=1, d_model=16, d_ff=32, heads=2, vocabulary=300, max_length=64, source_tokens=300,
    target_tokens=300, steps=1, validate_sentences=0, average=1, max_extra=5,
)  # fmt: skip
TREES = TEXT.but(output="trees", vocabulary=400, source_tokens=600, target_tokens=600)
RECIPES = {"text": TEXT, "trees": TREES}
SEEDS = {"the named one": 11, "the model's": 12, "that of RUN": 13, "that of --data": 14}
"""Where a recipe comes from can be told by its seed."""


class Row(NamedTuple):
    """A row of the table, its cells as text."""

    number: str
    RUN: str
    data: str
    text: str
    trees: str
    start_from: str
    recipe: str
    task: str
    gives_recipe: str
    gives_data: str

    def fits(self, case: "Case") -> bool:
        given = {True: "yes", False: "no"}
        names = ("data", "text", "trees", "start_from", "recipe")
        return (
            (self.RUN == "-" or case.RUN in self.RUN)
            and all(getattr(self, name) in ("-", given[getattr(case, name)]) for name in names)
            and self.task in ("-", case.task)
        )


class Case(NamedTuple):
    """One combination of what is there and what is given."""

    RUN: str
    data: bool
    text: bool
    trees: bool
    start_from: bool
    recipe: bool
    task: str | None

    @property
    def kind(self) -> str:
        return "trees" if self.trees or self.task == "parse" else "text"


def table() -> list[Row]:
    lines = (regard.start.__doc__ or "").splitlines()
    [header] = [line for line in lines if line.startswith("    row ")]
    starts = [match.start() for match in re.finditer(r"\S+", header)]
    starts[0] = 0
    rows = [line for line in lines if re.match(r" +\d+  \S", line)]
    ends = [*starts[1:], None]
    cells = [[line[a:b].strip() for a, b in zip(starts, ends, strict=True)] for line in rows]
    return [Row(*one, *[""] * (10 - len(one))) for one in cells]


def letters() -> list[str]:
    return re.findall(r"^    ([a-z])  ", regard.start.__doc__ or "", flags=re.MULTILINE)


TABLE = table()
CASES = [
    Case(*one)
    for one in product("NPBE", *[[False, True]] * 5, [None, "translate", "parse", "unknown"])
]


def test_every_case_has_a_row_and_every_row_a_case() -> None:
    assert [row.number for row in TABLE] == [str(n + 1) for n in range(len(TABLE))]
    first = [next(row.number for row in TABLE if row.fits(case)) for case in CASES]
    assert set(first) == {row.number for row in TABLE}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text and trees; data prepared of each, and a model."""
    folder = tmp_path_factory.mktemp("made")
    for side, words in (("en", ["dog", "cat", "bird"]), ("de", ["Hund", "Katze", "Vogel"])):
        lines = (f"{words[i % 3]} {words[i // 3 % 3]} {i}\n" for i in range(60))
        (folder / side).write_text("".join(lines), "utf-8")
    write_treebank(folder / "mrg", seed=1, trees=60)
    for kind, files in paths(folder).items():
        given = {name: [str(path) for path in some] for name, some in files.items()}
        recipe = RECIPES[kind].but(seed=SEEDS["that of --data"], held_out=2)
        regard.prepare(**given, out=folder / kind / "data", recipe=recipe)  # type: ignore[arg-type]
        recipe = RECIPES[kind].but(seed=SEEDS["the model's"])
        regard.train(**given, out=folder / kind / "model", recipe=recipe)  # type: ignore[arg-type]
        make_runs(folder, kind)
    average_run(folder / "text/model", folder / "text/other", 1, warn=pytest.fail)
    keep_origin(folder / "text/other", folder / "text/from other")
    return folder


def paths(folder: Path) -> dict[str, dict[str, list[Path]]]:
    return {
        "text": {"source": [folder / "en"], "target": [folder / "de"]},
        "trees": {"trees": [folder / "mrg"]},
    }


def run_of(case: Case, made: Path) -> Path:
    """A run directory in the state of the case; it is begun with the model that the case has."""
    return made / case.kind / f"{case.RUN}{case.start_from}"


def make_runs(folder: Path, kind: str) -> None:
    for case in {run_of(case, folder): case for case in CASES if case.kind == kind}.values():
        out = run_of(case, folder)
        if case.RUN in "BE" and case.start_from:
            keep_origin(folder / kind / "model", out)
        if case.RUN in "PB":
            shutil.copytree(folder / kind / "data", out / "data")
        if case.RUN in "BE":
            out.mkdir(exist_ok=True)
            recipe = RECIPES[kind].but(seed=SEEDS["that of RUN"])
            (out / "recipe.toml").write_text(recipe.to_toml(), "utf-8")


def start_of(case: Case, made: Path) -> Start:
    files = paths(made)
    given = (files["text"] if case.text else {}) | (files["trees"] if case.trees else {})
    return Start(
        run_of(case, made),
        TrainingFiles(**given),  # type: ignore[arg-type]
        data=made / case.kind / "data" if case.data else None,
        recipe=RECIPES[case.kind].but(seed=SEEDS["the named one"]) if case.recipe else None,
        task=case.task,
        start_from=made / case.kind / "model" if case.start_from else None,
    )


def expected_recipe(cell: str, kind: str, data: Recipe, corpus: ParallelText) -> Recipe:
    if cell == "for the time**":
        return choose(corpus, MINUTES, measure=lambda *_: 1000.0).recipe
    if cell == "small-parse":
        return SMALL_PARSE
    if cell in ("that of --data**", "of RUN/data**"):
        return data
    recipe = RECIPES[kind].but(seed=SEEDS[cell.removesuffix("*")])
    if cell.endswith("*"):
        prepared = data.model_dump()
        recipe = recipe.merged(
            {part: {key: prepared[part][key] for key in keys} for part, keys in DECIDED.items()}
        )
    return recipe


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.number)
def test_row(row: Row, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1000.0)
    corpus = ParallelText.of([made / "en"], [made / "de"])
    before = sorted(made.rglob("*"))
    for case in CASES:
        if next(other for other in TABLE if other.fits(case)) is not row:
            continue
        start = start_of(case, made)
        if row.gives_recipe == "refused":
            with pytest.raises(RegardError):
                begin(start)
            continue
        found, prepared = decide(start), made / case.kind / "data"
        data = prepared if row.gives_data == "--data" else start.out / "data"
        assert (found.data, found.is_prepared) == (data, row.gives_data != "prepared now"), case
        expected = expected_recipe(row.gives_recipe, case.kind, recipe_of(prepared), corpus)
        assert found.recipe == expected, case
    assert sorted(made.rglob("*")) == before


EN_DE = {"source": "en", "target": "de"}
VALID = EN_DE | {"valid_source": "en", "valid_target": "de"}
FROM = EN_DE | {"start_from": "text/model"}
SILVER = {"trees": "mrg", "silver": "mrg"}
OTHER_TOKENIZER = {"tokenizer": "trees/model/tokenizer.json"}
OWN_TOKENIZER = {"tokenizer": "text/data/tokenizer.json"}
SET = "assignments"
REFUSED: list[tuple[str, dict[str, str | float], type[RegardError], str]] = [
    ("a", {"data": "text/data", "tokenizer": "text/data/tokenizer.json"}, RegardError, "or leave"),
    ("b", EN_DE | {"valid_trees": "mrg"}, RegardError, "give --trees too"),
    ("b", EN_DE | {"silver": "mrg"}, RegardError, "give --trees too"),
    ("c", {"trees": "mrg", "silver_share": 0.5}, RegardError, "give --silver too"),
    ("c", SILVER | {"silver_share": 1.0}, RecipeError, "--silver-share 1.0: give a share between"),
    ("d", EN_DE | {"recipe": "wsj"}, RegardError, "parsing is learned from trees: give --trees"),
    ("e", {"trees": "mrg", "start_from": "text/model"}, RegardError, "is a translator: a parser"),
    ("e", EN_DE | {"start_from": "trees/model"}, RegardError, "is a parser: a translator"),
    ("f", FROM | {"tokenizer": "trees/model/tokenizer.json"}, RegardError, "leave out --tokenizer"),
    ("f", FROM | {SET: "tokenizer.vocabulary=500"}, RegardError, "leave out --set tokenizer.*"),
    ("f", FROM | {SET: " tokenizer.vocabulary=500"}, RegardError, "leave out --set tokenizer.*"),
    ("g", FROM | {"recipe": "small"}, ModelError, "of another shape (model.layers: 1 -> 3"),
    ("h", FROM | {"out": "text/model"}, RegardError, "is the model that --from names"),
    ("h", FROM | {"out": "text/BFalse"}, RegardError, "was begun without --from"),
    ("h", FROM | {"out": "text/from other"}, RegardError, "was begun with another --from"),
    ("i", {"source": "de", "target": "de", "out": "text/BFalse"}, RegardError, "another --source"),
    ("i", VALID | {"out": "text/BFalse"}, RegardError, "another --valid-source"),
    ("i", {"source": "en", "out": "text/PFalse"}, RegardError, "--target 0 files: give them"),
    ("i", SILVER | {"out": "trees/BFalse"}, RegardError, "another --silver: choose another --out"),
    ("i", OTHER_TOKENIZER | EN_DE | {"out": "text/BFalse"}, RegardError, "another --tokenizer: "),
    ("i", OTHER_TOKENIZER | {"out": "text/PFalse"}, RegardError, "another --tokenizer: choose"),
    ("i", {"tokenizer": "no.json", "out": "text/BFalse"}, ModelError, "no.json: "),
    ("j", {"data": "trees/data", "task": "translate"}, RecipeError, "was prepared for parsing"),
    (
        "j",
        {"data": "trees/data", "recipe": "small-parse", "task": "translate"},
        RecipeError,
        "--task translate: the recipe is for parsing",
    ),
    ("j", {"data": "trees/data", SET: "task.form=normalised"}, RecipeError, "form normalised"),
    ("k", {"data": "text/data", SET: "data.max_length=32"}, RecipeError, "length: 32 -> 64)"),
    (
        "l",
        EN_DE | {"recipe": "small", SET: "data.row_length=16"},
        TrainingError,
        "data.row_length = 16 has no room",
    ),
    (
        "m",
        EN_DE | OWN_TOKENIZER | {SET: "tokenizer.kind=wordpiece"},
        RegardError,
        "entries: leave out --set tokenizer.*",
    ),
]  # fmt: skip
"""What is given, by fields of `Start` and of its files, paths as texts; and what is raised."""


def test_every_letter_is_tested() -> None:
    assert letters() == sorted({letter for letter, *_ in REFUSED})


@pytest.mark.parametrize(("letter", "given", "kind", "why"), REFUSED)
def test_refused_as_well(
    letter: str,
    given: dict[str, Any],
    kind: type[RegardError],
    why: str,
    made: Path,
    tmp_path: Path,
) -> None:
    fields: dict[str, Any] = {"out": tmp_path / "run"}
    files: dict[str, Any] = {}
    for name, value in given.items():
        if name == "silver_share":
            files[name] = value
        elif name in TrainingFiles.__dataclass_fields__:
            files[name] = [made / value]
        elif name in ("out", "data", "tokenizer", "start_from"):
            fields[name] = made / value
        else:
            fields[name] = [value] if name == SET else value
    before = sorted(made.rglob("*"))
    with pytest.raises(kind, match=re.escape(why)):
        begin(Start(files=TrainingFiles(**files), **fields))
    assert sorted(made.rglob("*")) == before
    assert not list(tmp_path.iterdir())


def test_a_time_ends_a_run_by_any_recipe_and_chooses_one_where_none_is_given(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1000.0)
    files, said = TrainingFiles(**paths(made)["text"]), list[str]()  # type: ignore[arg-type]
    named = decide(Start(tmp_path / "run", files, recipe=TEXT, minutes=7.0)).recipe
    assert named == TEXT.but(minutes=7.0)
    begun = decide(Start(made / "text/BFalse", minutes=7.0)).recipe
    assert begun == RECIPES["text"].but(seed=SEEDS["that of RUN"], minutes=7.0)
    for start in (
        Start(tmp_path / "run", files, assignments=["training.average=8", "training.minutes=7"]),
        Start(tmp_path / "run", data=made / "text/data", minutes=7.0),
        Start(made / "text/PFalse", minutes=7.0),
    ):
        said.clear()
        chosen = decide(start, chose=lambda choice: said.extend(choice.sentences())).recipe
        assert chosen.training.minutes == 7.0
        assert chosen.training.average == (8 if start.assignments else 9)
        assert said[0].startswith("the run takes 7 min")
    unlimited = decide(Start(tmp_path / "run", files, minutes=0.0)).recipe
    assert unlimited.training.steps < NO_LIMIT
    set_to_0 = Start(tmp_path / "run", files, assignments=["training.minutes=0"])
    assert unlimited == decide(set_to_0).recipe


def test_of_a_share_of_the_text_there_are_more_passes(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1000.0)
    files, chosen = TrainingFiles(**paths(made)["text"]), list[Choice]()  # type: ignore[arg-type]
    for change in ([], ["data.share=0.25"]):
        decide(Start(tmp_path / "run", files, minutes=1.0, assignments=change), chose=chosen.append)
    assert [choice.recipe.data.share for choice in chosen] == [1.0, 0.25]
    assert chosen[1].epochs == pytest.approx(4 * chosen[0].epochs, rel=0.1)


@pytest.mark.parametrize(
    ("before", "after", "grows"),
    [(10.0, 10.0, False), (10.0, 600.0, True), (10.0, 0.0, True), (0.0, 600.0, False)],
)
def test_a_run_that_has_a_share_of_its_text_says_so_when_it_gets_more_time(
    before: float, after: float, grows: bool, made: Path, tmp_path: Path
) -> None:
    files, out, said = TrainingFiles(**paths(made)["text"]), tmp_path / "run", list[str]()  # type: ignore[arg-type]
    recipe = TEXT.but(share=0.5, minutes=before)
    keep_beginning(out, *begin(Start(out, files, recipe=recipe)))
    assert decide(Start(out, minutes=after), said.append).recipe.data.share == 0.5
    why = "the run gets more time, and its data stays 50% of its text, drawn at random (data.share)"
    assert said == [f"{why}: for more of the text, begin a new run"] * grows


def test_the_share_of_a_model_is_not_that_of_the_text_it_goes_on_with(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = TrainingFiles(**paths(made)["text"])  # type: ignore[arg-type]
    model = open_origin(made / "text/model", tmp_path / "run")
    model = dataclasses.replace(model, recipe=model.recipe.but(share=0.5))
    monkeypatch.setattr(regard.start, "open_origin", lambda *_: model)
    start = Start(tmp_path / "run", files, start_from=made / "text/model")
    assert decide(start).recipe == model.recipe.but(share=1.0)


def test_several_processes_take_the_whole_text(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one process is timed, so the share of the text that they will see is not known."""
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1e-3)
    large = ParallelText(4_500_000, 600_000_000, ((130, 140),) * 100)
    monkeypatch.setattr(TrainingFiles, "measured", lambda *_, **__: large)
    start = Start(tmp_path / "run", TrainingFiles(**paths(made)["text"]))  # type: ignore[arg-type]
    assert decide(start).recipe.data.share < 0.1
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert decide(start).recipe.data.share == 1


def test_more_time_is_for_steps_and_not_for_more_checkpoints(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was tried for a minute may go on for a day."""
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1000.0)
    files, out = TrainingFiles(**paths(made)["text"]), tmp_path / "run"  # type: ignore[arg-type]
    tried, data = begin(Start(out, files, minutes=10.0))
    assert tried.training.steps == NO_LIMIT
    keep_beginning(out, tried, data)
    longer = decide(Start(out, minutes=600.0)).recipe
    every = {name: 60 * getattr(tried.training, name) for name in ("save_every", "validate_every")}
    assert every["validate_every"] > every["save_every"]
    assert longer == tried.but(minutes=600.0, **every)
    refuse_another_recipe(out, longer)
    keep_beginning(out, longer, data)
    assert decide(Start(out, minutes=600.0)).recipe == longer
    assert decide(Start(out, minutes=10.0)).recipe == tried
    assert decide(Start(out, recipe=tried, minutes=600.0)).recipe == tried.but(minutes=600.0)
    set_too = Start(tmp_path / "other", files, minutes=600.0, assignments=["training.minutes=10"])
    assert decide(set_too).recipe == tried
    with pytest.raises(RecipeError, match="another recipe"):
        refuse_another_recipe(out, longer.but(save_every=1))


@pytest.mark.parametrize("minutes", [-1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused_before_the_machine_is_measured(
    minutes: float, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regard.start, "choose", None)
    files = TrainingFiles(**paths(made)["text"])  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"training\.minutes: input should be"):
        decide(Start(tmp_path / "run", files, minutes=minutes))


@pytest.mark.parametrize("field", ["source", "valid_target"])
@pytest.mark.parametrize("text", [None, "one line\n"])
def test_bad_files_are_refused_before_the_machine_is_measured(
    field: str, text: str | None, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regard.start, "choose", None)
    bad, good = tmp_path / "bad", paths(made)["text"]
    if text is not None:
        bad.write_text(text)
    valid = {"valid_source": good["source"], "valid_target": good["target"]}
    files = TrainingFiles(**(good | valid | {field: [bad]}))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"{bad}: no such file|{bad}:1: this is the last line"):
        decide(Start(tmp_path / "run", files))


@pytest.mark.parametrize("text", ["", "\n\n"])
def test_blank_validation_files_are_refused_before_the_machine_is_measured(
    text: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regard.start, "choose", None)
    blank = tmp_path / "blank"
    blank.write_text(text)
    valid = {"valid_source": [blank], "valid_target": [blank]}
    files = TrainingFiles(**(paths(made)["text"] | valid))  # type: ignore[arg-type]
    with pytest.raises(DataError, match=f"{blank}: no pair to validate on: give more text, or"):
        decide(Start(tmp_path / "run", files))


def test_the_task_and_the_settings_change_the_recipe(made: Path, tmp_path: Path) -> None:
    files = TrainingFiles(trees=[made / "mrg"])
    assignments = ["training.steps=7", "training.warmup_steps=5"]
    found = decide(Start(tmp_path / "run", files, recipe=TEXT, assignments=assignments)).recipe
    assert found == TEXT.but(output="trees", steps=7, warmup_steps=5)


def test_data_is_prepared_where_the_table_says_so(made: Path, tmp_path: Path) -> None:
    files = TrainingFiles(**paths(made)["text"])  # type: ignore[arg-type]
    heard: list[str] = []
    start = Start(tmp_path / "run", files, recipe=TEXT)
    recipe, data = begin(start, progress=lambda reading: heard.append(reading.stage))
    assert (recipe, data) == (TEXT, tmp_path / "run" / "data")
    assert recipe_of(data) == TEXT
    assert list(dict.fromkeys(heard)) == ["survey", "learn", "encode"]


def test_a_run_may_be_given_its_tokenizer_again(made: Path) -> None:
    run, own = made / "text/BFalse", made / "text/data/tokenizer.json"
    assert decide(Start(run, tokenizer=own)).recipe.training.seed == SEEDS["that of RUN"]


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_tokenizer_that_is_given_is_described_by_the_recipe(
    made: Path, tmp_path: Path, kind: TokenizerKind
) -> None:
    lines = (made / "de").read_text("utf-8").splitlines()
    learned = Tokenizer.learn(lines, kind, 520)
    learned.save(tmp_path / "tokenizer.json")
    size = max(300, learned.size)  # no recipe has a smaller vocabulary
    same = [f"tokenizer.kind={kind}", f"tokenizer.vocabulary={size}"]
    files = TrainingFiles(**paths(made)["text"])  # type: ignore[arg-type]
    given: dict[str, Any] = {"tokenizer": tmp_path / "tokenizer.json", "assignments": same}
    start = Start(tmp_path / "run", files, recipe=TEXT, **given)
    recipe = decide(start).recipe
    assert recipe == TEXT.but(kind=kind, vocabulary=size)
    prepare_files(files, tmp_path / "data", recipe=TEXT, **given)
    assert recipe_of(tmp_path / "data") == recipe
    start.out.mkdir()
    begun = TEXT.but(vocabulary=300)  # before the recipe described the tokenizer
    (start.out / "recipe.toml").write_text(begun.to_toml(), "utf-8")
    assert decide(replace(start, assignments=())).recipe == begun
    other = given | {"assignments": ["tokenizer.vocabulary=999"]}
    with pytest.raises(RegardError, match=r"entries: leave out --set tokenizer\.\*, or leave out"):
        prepare_files(files, tmp_path / "data", recipe=TEXT, **other)


def test_a_run_keeps_to_its_mixture(made: Path, tmp_path: Path) -> None:
    files = TrainingFiles(**paths(made)["text"], mix=[2])  # type: ignore[arg-type]
    start = Start(tmp_path / "run", files, recipe=TEXT)
    _, data = begin(start)
    pairs = Pairs.open(data, "train")
    assert len(pairs) == 2 * len({pairs.source(i).tobytes() for i in range(len(pairs))})
    (start.out / "recipe.toml").write_text(TEXT.to_toml())  # begun
    assert begin(start) == (TEXT, data)
    with pytest.raises(RegardError, match="was begun with another --mix: choose another --out"):
        begin(replace(start, files=replace(files, mix=[1])))


@pytest.mark.parametrize("mix", [[1, 1], [0], [1.5]])
def test_a_mixture_of_other_files_is_refused(made: Path, tmp_path: Path, mix: list[Any]) -> None:
    files = TrainingFiles(**paths(made)["text"], mix=mix)  # type: ignore[arg-type]
    with pytest.raises(RegardError, match=r"^--mix .*: give one whole number from 1 for each"):
        begin(Start(tmp_path / "run", files, recipe=TEXT))


def test_a_model_to_begin_with_gives_its_tokenizer(made: Path, tmp_path: Path) -> None:
    files = TrainingFiles([made / "de"], [made / "en"])
    model = made / "text/model"
    _, data = begin(Start(tmp_path / "run", files, start_from=model))
    assert (data / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()
    assert (tmp_path / "run" / "from.json").exists()


def test_data_that_is_gone_is_prepared_again_with_the_tokenizer_of_the_run(
    made: Path, tmp_path: Path
) -> None:
    files = TrainingFiles([made / "en"], [made / "de"])
    run, other = tmp_path / "run", tmp_path / "other"
    prepare_files(files, other, recipe=TEXT.but(vocabulary=310))
    recipe, data = begin(Start(run, data=other, recipe=TEXT))
    run.mkdir()
    keep_beginning(run, recipe, data)
    _, again = begin(Start(run, files, recipe=TEXT))
    assert again == run / "data"
    for name in ("tokenizer.json", "train.source.ids.npy", "valid.target.ids.npy"):
        assert (again / name).read_bytes() == (other / name).read_bytes()
    shutil.rmtree(again)
    foreign = Start(run, files, recipe=TEXT, tokenizer=made / "text/model/tokenizer.json")
    with pytest.raises(RegardError, match="was begun with another --tokenizer"):
        begin(foreign)
    assert not again.exists()


def test_the_whole_vocabulary_is_that_of_larger_models(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.budget.choice.tokens_per_second", lambda *_: 1000.0)
    monkeypatch.setitem(rule_of_times()["vocabulary"], "least", 300)
    monkeypatch.setitem(rule_of_times()["model"][0], "vocabulary", 400)
    files = TrainingFiles(**paths(made)["text"])  # type: ignore[arg-type]
    short = Start(tmp_path / "run", files, minutes=1.0)
    sizes = [
        decide(start).recipe.tokenizer.vocabulary
        for start in (short, replace(short, whole_vocabulary=True))
    ]
    text = ParallelText.of(files.source, files.target)
    assert sizes == [400, text.vocabulary()]
    assert text.vocabulary() > 400


def test_only_settings_that_were_given_are_told_as_those_of_other_data(
    made: Path, tmp_path: Path
) -> None:
    data, given = made / "text/data", ["data.held_out=5"]
    start = Start(tmp_path / "run", data=data, recipe=TEXT.but(vocabulary=999), assignments=given)
    with pytest.raises(RecipeError, match=r"other settings \(data\.held_out: 5 -> 2\): leave"):
        decide(start)


def test_what_stays_as_it_was_prepared_is_said(made: Path, tmp_path: Path) -> None:
    said: list[str] = []
    data = made / "text/data"
    begin(Start(tmp_path / "run", data=data, recipe=TEXT.but(vocabulary=999)), remark=said.append)
    assert said == [
        f"{data}: keeps the settings of its preparation (tokenizer.vocabulary: 999 -> 300; "
        "data.held_out: 1000 -> 2)"
    ]
