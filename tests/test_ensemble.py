"""Several models translate together by the mean of their probabilities."""

from pathlib import Path

import pytest
import torch

from regard.arithmetic.choose import for_inference
from regard.arithmetic.cuda import Cuda
from regard.arithmetic.plain import PLAIN
from regard.data.rows import one_per_row
from regard.ensemble import Ensemble
from regard.errors import ModelError
from regard.machine.copies import can_be_copied
from regard.machine.streams import Streams
from regard.run.model_directory import write_model
from regard.text.tokenizer import BOS, EOS, Tokenizer
from regard.transformer import Transformer
from regard.translation import Translator, load
from run.copying import strings
from untrained import BRIEF, LINES, TOKENIZER, Heard, translator

FIELDS = {"norm": "pre", "activation": "gelu", "embeddings": "apart", "output_bias": True}
FEW = LINES[:5]
SIZES = [BRIEF, BRIEF.but(layers=2, d_model=24, heads=3), BRIEF.but(d_ff=40, **FIELDS)]


def members() -> list[Transformer]:
    """Untrained models of different sizes."""
    torch.manual_seed(5)
    return [Transformer(recipe.model, TOKENIZER.size).eval() for recipe in SIZES]


def weights_of(member: Transformer) -> dict[str, torch.Tensor]:
    return {name: weight.detach() for name, weight in member.state_dict().items()}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    for i, (recipe, member) in enumerate(zip(SIZES, members(), strict=True)):
        write_model(folder / str(i), recipe, TOKENIZER, weights_of(member), {})
    return [folder / str(i) for i in range(len(SIZES))]


@torch.inference_mode()
def test_each_step_is_the_mean_of_the_probabilities() -> None:
    some = members()
    for member in some:
        member.compute_by(PLAIN)
    source = one_per_row([[*ids, EOS] for ids in TOKENIZER.encode(LINES[:4])])
    ensemble, written = Ensemble(some), torch.full((4, 1), BOS)
    state = ensemble.start(source)
    for _ in range(5):
        log_p, state = ensemble.step(written[:, -1], state.select(torch.arange(4)[:, None]))
        target = one_per_row(written.tolist())
        each = [member(source, target)[:, -1].double().softmax(-1) for member in some]
        torch.testing.assert_close(log_p.double().exp(), torch.stack(each).mean(0))
        written = torch.cat([written, log_p.argmax(-1, keepdim=True)], 1)


def test_a_model_with_itself_is_that_model(models: list[Path]) -> None:
    alone = list(load(models[1]).stream(LINES, n_best=2))
    twice = list(load(models[1], models[1]).stream(LINES, n_best=2))
    for one, other in zip(alone, twice, strict=True):
        assert [t.text for t in one] == [t.text for t in other]
        assert [t.score for t in one] == pytest.approx([t.score for t in other], abs=1e-5)


def test_others_change_what_is_written(models: list[Path]) -> None:
    together = load(*models).translate(FEW)
    assert all(together != load(model).translate(FEW) for model in models)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_batches_and_copies_change_nothing(
    models: list[Path], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = load(*models, precision=precision, exact=True)
    alone = [next(some.stream([line])) for line in FEW]
    monkeypatch.setattr("regard.decoding.COPIES_FROM", 0)
    assert can_be_copied()
    assert list(some.stream(FEW)) == alone


def test_members_share_a_gpus_memory() -> None:
    """Two members decode half as many tokens together as one model."""
    for count, most in ((1, 122), (2, 61)):
        members = [translator().network for _ in range(count)]
        by = Cuda(learning=False, streams=Streams(torch.device("cpu"), 2))
        by.batch_tokens = 122
        for member in members:
            member.compute_by(by)
        Translator(Ensemble(members), TOKENIZER, BRIEF.search, 61).translate(LINES)
        assert isinstance(members[0], Heard)
        slots = [batch.ids.numel() for batch in members[0].batches]
        assert most / 2 < max(slots) <= most


def test_sentences_share_a_batch_only_if_no_member_is_changed_by_it(
    models: list[Path], tmp_path: Path
) -> None:
    recipe = BRIEF.but(score="additive")
    member = Transformer(recipe.model, TOKENIZER.size)
    write_model(tmp_path / "additive", recipe, TOKENIZER, weights_of(member), {})
    some = load(models[0], tmp_path / "additive", exact=True)
    assert some.one_by_one
    alone = [next(some.stream([line])) for line in FEW]
    assert list(some.stream(FEW)) == alone


def test_a_bound_is_that_of_the_shortest(models: list[Path]) -> None:
    assert load(*models).longest == BRIEF.data.max_length
    learned = BRIEF.but(positions="learned", max_positions=16, max_length=16).model
    member = Transformer(learned, TOKENIZER.size)
    member.compute_by(for_inference(torch.device("cpu"), torch.float32))
    ensemble = Ensemble([*members(), member])
    assert ensemble.longest == 16
    assert Translator(ensemble, TOKENIZER, BRIEF.search, 16).network is ensemble.members[0]


def test_another_tokenizer_is_refused(models: list[Path], tmp_path: Path) -> None:
    other = Tokenizer.learn(strings(97, seed=8), "bpe", 299)
    member = Transformer(BRIEF.model, other.size)
    write_model(tmp_path / "other", BRIEF, other, weights_of(member), {})
    with pytest.raises(ModelError, match=r"has another tokenizer than .*: models can translate"):
        load(models[0], tmp_path / "other")
