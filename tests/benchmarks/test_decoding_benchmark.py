"""benchmarks/decoding.py: its peers compute what regard does, and its figures are what they say."""

import json
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import decoding
import decoding_regard
import pytest
import torch
import torch.nn.functional as F
from side_by_side import Contender, Result

from regard.arithmetic.plain import PLAIN
from regard.corpus import example
from regard.data.rows import one_per_row
from regard.decoding import Decoding
from regard.run.model_directory import open_model, write_model
from regard.search import search
from regard.text.tokenizer import BOS, EOS, PAD
from regard.transformer import Transformer
from run.killing import in_fork

LEARNED = [example(1, i) for i in range(40)]
KNOWN = 15
LINES = [e.source for e in LEARNED[:KNOWN]] + [example(2, i).source for i in range(15)]
RECIPE = decoding.SHAPES["tiny"].but(layers=2, d_model=48, d_ff=80, heads=3)
ONCE = Namespace(rounds=0, threads=1)
NAMES = ("regard fp32", "Marian", decoding.CEILING.name)
TWO = {"sentences": 2}
BY_NAME = {contender.name: contender for contender in decoding.CONTENDERS}


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """A model with random weights."""
    directory = tmp_path_factory.mktemp("plain") / "model"
    decoding.random_model(
        directory, RECIPE, [text for e in LEARNED for text in (e.source, e.target)]
    )
    return directory


@pytest.fixture(scope="module")
def trained(plain) -> Path:
    """A model that has learned some sentences well enough to end its translations."""
    model = open_model(plain)
    torch.manual_seed(1)
    network = Transformer(RECIPE.model, model.tokenizer.size)
    source = one_per_row([[*p, EOS] for p in model.tokenizer.encode([e.source for e in LEARNED])])
    targets = model.tokenizer.encode([e.target for e in LEARNED])
    labels = one_per_row([[*target, EOS] for target in targets]).ids.flatten()
    shifted = one_per_row([[BOS, *target] for target in targets])
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(150):
        logits = network(source, shifted).flatten(0, 1)
        optimizer.zero_grad()
        F.cross_entropy(logits, labels, ignore_index=PAD).backward()
        optimizer.step()
    directory = plain.with_name("trained")
    weights = network.state_dict()
    write_model(directory, model.recipe, model.tokenizer, weights, {})
    return directory


def task(directory: Path, *, beam: int = 4, length: int | None = None) -> decoding.Task:
    model = open_model(directory)
    recipe = model.recipe.but(beam=beam, alpha=0.0)
    return decoding.Task(directory, recipe, model.tokenizer, LINES, length)


@pytest.fixture(scope="module", params=["CTranslate2 fp32", "Marian"])
def peer(request) -> str:
    if not BY_NAME[request.param].python.exists():
        pytest.skip(f"there is no {request.param}: `make bench-setup` installs it")
    return request.param


@pytest.mark.slow
def test_a_peer_translates_as_regard_does(peer, trained):
    contenders = [BY_NAME["regard fp32"], BY_NAME[peer]]
    same = {}
    for beam in (1, 4):
        work = task(trained, beam=beam)
        _, outputs, failures = decoding.run(work, contenders, ONCE, alone=False)
        assert not failures
        ours, theirs = outputs["regard fp32"], outputs[peer]
        assert len(set(ours)) > KNOWN  # else they might agree by chance
        # Translations of sentences not learned may not end, and only regard has the paper's bound.
        same[beam] = [b.startswith(a.rstrip()) for a, b in zip(ours, theirs, strict=True)]
    assert sum(same[1]) >= len(LINES) - 1
    # The model is unsure of sentences that it has not learned: </s> is one of many likely tokens.
    assert sum(same[4][:KNOWN]) >= KNOWN - 1


def test_a_random_model_ends_no_output_before_its_limit(plain):
    model = open_model(plain)
    sources = one_per_row([[*pieces, EOS] for pieces in model.tokenizer.encode(LINES)])
    limits, recipe = torch.full((len(LINES),), 40), model.recipe.search
    found = search(model.network, sources, limits, recipe, by=PLAIN, n_best=4)
    assert not any(hypothesis.finished for some in found for hypothesis in some)


def test_every_output_is_of_the_length_that_was_asked_for(plain, tmp_path):
    work = task(plain, length=7)
    sentences = tmp_path / "sentences.json"
    sentences.write_text(json.dumps([{"text": text} for text in LINES]))
    given = [*work.arguments(1), f"--sentences={sentences}", f"--outputs={tmp_path / 'out'}"]
    in_fork(forced, given)


def forced(given):
    """Assert that a turn of regard writes outputs of seven tokens; another process calls it."""
    sys.argv = ["decoding_regard.py", *given]
    lengths = []

    def heard(self, sources, search, **options):
        found = decode(self, sources, search, **options)
        lengths.extend(len(best.tokens) for best, *_ in found)
        return found

    decode, Decoding.hypotheses = Decoding.hypotheses, heard
    _, turn = decoding_regard.start()
    turn({})
    assert lengths == [7] * len(LINES)


def test_a_random_model_has_the_whole_vocabulary_and_reads_any_text(plain):
    model = open_model(plain)
    assert model.tokenizer.size == RECIPE.tokenizer.vocabulary
    assert model.tokenizer.decode(model.tokenizer.encode(["Übermut"])) == ["Übermut"]


def test_an_operation_is_counted_once_for_each_token_and_hypothesis(plain):
    work = task(plain, beam=4, length=3)
    layer = 6 * 48 * 48 + 2 * 48 * 80  # in either stack: 6 projections and 2 layers of ReLU
    read = sum(map(len, work.pieces())) * 2 * layer
    written = len(LINES) * (1 + 4 + 4) * (2 * layer + 48 * RECIPE.tokenizer.vocabulary)
    assert work.flop(LINES) == 2 * (read + written)


def test_only_a_line_feed_ends_a_line(tmp_path):
    (tmp_path / "text").write_bytes("one\u2028line\n\nand\x0canother\r\n".encode())
    given = Namespace(source=tmp_path / "text", target=None, sentences=9)
    assert decoding.read(given) == (["one\u2028line", "and\x0canother"], None)


def test_medians_ratios_and_shares_are_those_of_the_rounds(plain):
    work = replace(task(plain, length=5), sentences=LINES[:2])
    one, two, limit = (Result(name, {"precision": "float32"}) for name in NAMES)
    for seconds in (2.0, 3.0, 4.0):
        one.turns.append({"seconds": seconds, "each": [seconds], "peak_memory": 10} | TWO)
        two.turns.append({"seconds": 2 * seconds, "each": [2 * seconds], "peak_memory": 20} | TWO)
        limit.turns.append({"flop_per_second": {"torch.float32": work.flop(LINES[:2]) / seconds}})
    results = dict(zip(NAMES, (one, two, limit), strict=True))
    outputs = {NAMES[0]: ["ja", "nein"], NAMES[1]: ["ja", "ja"]}
    found = decoding.summarise(replace(work, length=None), results, outputs, None)["Marian"]
    assert found["as_fp32"] == 0.5
    found = decoding.summarise(work, results, outputs, None)
    ours, theirs = found[NAMES[0]], found[NAMES[1]]
    assert ours["sentences_per_second"] == {"median": 2 / 3, "low": 0.5, "high": 1}
    assert ours["tokens_per_second"] == pytest.approx(10 / 3)
    assert theirs["milliseconds"] == {"median": 6000, "p95": 8000}
    assert theirs["regard_is_faster"][NAMES[0]] == {"median": 2, "low": 2, "high": 2}
    assert [summary["of_ceiling"]["median"] for summary in (ours, theirs)] == [1, 0.5]
    assert "as_fp32" not in theirs  # of forced length: its last token need not be </s>


def test_the_table_is_shown_and_the_record_kept(plain, tmp_path, monkeypatch, capsys):
    """A contender that cannot run is left out of both, and named."""
    script = tmp_path / "fp7.py"
    script.write_text("raise SystemExit('no fp7 here')")
    contenders = [Contender("regard fp7", str(script)), BY_NAME["regard fp32"]]
    monkeypatch.setattr(decoding, "CONTENDERS", contenders)
    text, kept = tmp_path / "text", tmp_path / "kept"
    text.write_text("\n".join(["", *LINES[:4]]), encoding="utf-8")
    command = f"decoding.py --model {plain} --source {text} --target {text} --keep {kept} --alone 2"
    command += " --rounds 2 --threads 1 --beam 2 --only"
    monkeypatch.setattr(sys, "argv", [*command.split(), *(one.name for one in contenders)])
    decoding.main()
    shown = capsys.readouterr().out
    assert "4 sentences as a file" in shown and "2 sentences one at a time" in shown
    (path,) = kept.iterdir()
    record = json.loads(path.read_text())
    for measure, sentences in (("file", 4), ("alone", 2)):
        assert record[measure]["sentences"] == sentences
        (ours,) = record[measure]["contenders"].values()
        assert ours["as_fp32"] == 1 and 0 <= ours["bleu"] <= 100
        assert len(ours["turns"]) == 2
        assert "no fp7 here" in record[measure]["absent"]["regard fp7"]
