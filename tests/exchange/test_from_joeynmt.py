"""Models of JoeyNMT compute and cut text as JoeyNMT does, or are refused."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from cli.refusing import regard
from exchange.imported import opened, ours, translates
from exchange.marian_models import cutter, pieces
from exchange.references import Paper, interleaved, normal, renamed
from regard.errors import ModelError
from regard.exchange.from_joeynmt import read_joeynmt
from regard.exchange.texts import Texts
from regard.text.foreign.base import ForeignTokenizer

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")


def joey(
    paper: Paper, pre: bool, source: Tensor, target: Tensor, output: Tensor
) -> dict[str, Tensor]:
    """A state dict of JoeyNMT."""
    names = {
        "encoder.self": "src_src_att", "decoder.self": "trg_trg_att",
        "decoder.cross": "src_trg_att", "ff.1": "feed_forward.pwff_layer.0",
        "ff.2": "feed_forward.pwff_layer.3", "encoder.1.norm": "layer_norm",
        "encoder.2.norm": "feed_forward.layer_norm", "decoder.1.norm": "x_layer_norm",
        "decoder.2.norm": "dec_layer_norm", "decoder.3.norm": "feed_forward.layer_norm",
    }  # fmt: skip
    stacks = {stack: f"{stack}.layers." for stack in ("encoder", "decoder")}
    found = renamed(paper, names, "q_layer k_layer v_layer output_layer", stacks)
    found |= {"src_embed.lut.weight": source, "trg_embed.lut.weight": target}
    found["decoder.output_layer.weight"] = output
    for stack in stacks:
        found[f"{stack}.pe.pe"] = interleaved(50, source.shape[1])[None]
        if pre:
            norm = getattr(paper.transformer, stack).norm
            for end in ("weight", "bias"):
                found[f"{stack}.layer_norm.{end}"] = getattr(norm, end).detach().clone()
    return found


def configured(pre: bool, tied: bool) -> dict[str, Any]:
    stack = {
        "type": "transformer", "num_heads": 2, "hidden_size": 12, "ff_size": 18, "dropout": 0.1,
        "embeddings": {"embedding_dim": 12, "scale": not pre},
        "layer_norm": "pre" if pre else "post",
    }  # fmt: skip
    side = {"level": "bpe", "tokenizer_type": "sentencepiece"}
    config = {
        "data": {
            "src": side | {"tokenizer_cfg": {"model_file": "x/source.model"}},
            "trg": side | {"tokenizer_cfg": {"model_file": "x/target.model"}},
        },
        "testing": {"beam_size": 5, "beam_alpha": 1.0},
        "model": {
            "tied_embeddings": tied, "tied_softmax": tied,
            "encoder": stack | {"num_layers": 1}, "decoder": stack | {"num_layers": 2},
        },
    }  # fmt: skip
    return json.loads(json.dumps(config))  # without YAML's aliases


def write_joey(folder: Path, pre: bool, tied: bool) -> tuple[Paper, Tensor, Tensor, Tensor]:
    """Write a model directory; return the layers and the three matrices of its model."""
    torch.manual_seed(6)
    paper = Paper(12, 2, 18, (1, 2), norm_first=pre, layer_norm_eps=1e-6)
    if not pre:
        paper.transformer.encoder.norm = paper.transformer.decoder.norm = None
    specials = ["<unk>", "<pad>", "<s>", "</s>"]
    own = [[*specials, *pieces(cutter(side))] for side in ("source", "target")]
    if tied:
        own = [list(dict.fromkeys(own[0] + own[1]))] * 2
    source, target = (normal(len(one), 12, std=1.0) for one in own)
    if tied:
        target = source
    output = target if tied else normal(len(own[1]), 12, std=1.0)
    folder.mkdir()
    for name, one, side in (("src", own[0], "source"), ("trg", own[1], "target")):
        (folder / f"{name}_vocab.txt").write_text("".join(f"{piece}\n" for piece in one), "utf-8")
        (folder / f"{side}.model").write_bytes(cutter(side))
    state = joey(paper, pre, source, target, output)
    if tied:
        del state["trg_embed.lut.weight"], state["decoder.output_layer.weight"]
    torch.save({"model_state": state, "steps": 5, "optimizer_state": {}}, folder / "5.ckpt")
    (folder / "best.ckpt").symlink_to("5.ckpt")
    (folder / "config.yaml").write_text(yaml.safe_dump(configured(pre, tied)))
    return paper, source, target, output


@pytest.mark.parametrize("pre", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_joeynmt(tmp_path: Path, pre: bool, tied: bool) -> None:
    folder = tmp_path / "theirs"
    paper, source, target, output = write_joey(folder, pre, tied)
    model = opened(
        regard("import", "joeynmt", folder, "--out", tmp_path / "ours"), tmp_path / "ours"
    )
    scale = 1.0 if pre else math.sqrt(12)
    ids, written = [7, 9, 8, 3], [10, 4, 5]
    x = source[ids] * scale + interleaved(4, 12)
    y = target[[2, *written]] * scale + interleaved(4, 12)
    expected = paper.states(x, y) @ output.T
    assert torch.allclose(ours(model, ids, written), expected, atol=1e-4)
    assert model.recipe.search.beam == 5 and model.recipe.search.penalty == "gnmt"
    if tied and pre:
        translates(tmp_path / "ours")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a model that normalises after each sub-layer."""
    folder = tmp_path_factory.mktemp("joey") / "theirs"
    write_joey(folder, pre=False, tied=True)
    return folder


def change(folder: Path, keys: str, value: Any) -> None:
    """Write the usual configuration with one key changed; None removes the key."""
    config = configured(pre=False, tied=True)
    *above, last = keys.split(".")
    section = config
    for key in above:
        section = section.setdefault(key, {})
    section[last] = value
    if value is None:
        del section[last]
    (folder / "config.yaml").write_text(yaml.safe_dump(config))


MOSES_AND_SENTENCEPIECE = {
    "level": "bpe", "tokenizer_type": "sentencepiece", "lang": "en",
    "tokenizer_cfg": {"model_file": "x/source.model", "pretokenizer": "moses"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (
            "model.encoder.layer_norm",
            None,
            "layer_norm is 'pre', and the weights have no norm",
        ),
        ("model.decoder.layer_norm", "pre", "layer_norm is 'pre'"),
        ("data.src.level", "char", "level is 'char': it must be bpe or word"),
        ("data.src.tokenizer_type", "fastbpe", "'fastbpe': it must be one of sentencepiece, sub"),
        ("data.src.tokenizer_cfg", {}, "model_file is None: it must be the file of the sub-word"),
        ("data.trg.lowercase", True, "lowercase is True"),
        ("data.trg.tokenizer_type", "subword-nmt", "cuts source and target by different rules"),
        ("data.trg.level", "word", "cuts source and target by different rules"),
        ("data.src.tokenizer_cfg.separator", "||", "separator is '||'"),
        ("data.src.tokenizer_cfg.pretokenizer", "Moses", "pretokenizer is 'Moses'"),
        ("data.src", MOSES_AND_SENTENCEPIECE, "must be none where SentencePiece divides the text"),
        ("data.special_symbols.lang_tags", ["<de>"], "lang_tags is ['<de>']"),
        ("data.special_symbols.bos_token", "</s>", "must be four different names"),
        ("data.special_symbols.pad_token", 3, "pad_token is 3: it must be a text"),
        ("testing.repetition_penalty", 1.2, "repetition_penalty is 1.2"),
        ("testing.no_repeat_ngram_size", 3, "no_repeat_ngram_size is 3"),
        ("testing.generate_unk", False, "generate_unk is False"),
        ("testing.min_output_length", 5, "min_output_length is 5"),
        ("testing.beam_size", 2000, "beam_size is 2000"),
    ],
)
def test_what_no_recipe_and_no_tokenizer_has_is_refused(
    folder: Path, keys: str, value: Any, said: str
) -> None:
    change(folder, keys, value)
    with pytest.raises(ModelError) as refused:
        read_joeynmt(folder)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("keys", "value", "search"),
    [
        ("testing.max_output_length", 200, (5, 1.0, 200)),
        ("testing.max_output_length", -1, (5, 1.0, 50)),
        ("training", {"max_output_length": 100}, (5, 1.0, 100)),
        ("model.decoder.layer_norm", None, (5, 1.0)),
        ("testing.repetition_penalty", -1, (5, 1.0)),
        ("testing.no_repeat_ngram_size", -1, (5, 1.0)),
        ("testing.generate_unk", True, (5, 1.0)),
        ("testing.min_output_length", 1, (5, 1.0)),
        ("testing.alpha", 0.5, (5, 0.5)),
        ("testing.beam_alpha", -1, (5, 0.0)),
        ("testing.beam_size", None, (1, 1.0)),
        ("testing", None, (1, 0.0)),
    ],
)
def test_what_joeynmt_has_by_default_is_taken(
    folder: Path, keys: str, value: Any, search: tuple[float, ...]
) -> None:
    change(folder, keys, value)
    recipe = read_joeynmt(folder).recipe.search
    assert (recipe.beam, recipe.alpha, recipe.max_extra)[: len(search)] == search


def test_special_pieces_have_the_names_of_the_configuration(folder: Path, tmp_path: Path) -> None:
    text = (folder / "src_vocab.txt").read_text("utf-8")
    named = {"unk": "[UNK]", "pad": "[PAD]", "bos": "<bos>", "eos": "<eos>"}
    change(folder, "data.special_symbols", {f"{key}_token": name for key, name in named.items()})
    lines = "".join(f"{name}\n" for name in named.values()) + text.split("\n", 4)[4]
    (tmp_path / "v.txt").write_text(lines, "utf-8")
    tokenizer = read_joeynmt(
        folder, Texts([tmp_path / "v.txt"], [folder / "source.model"])
    ).tokenizer
    assert isinstance(tokenizer, ForeignTokenizer)
    assert tokenizer.order.foreign_ids[:4] == [1, 2, 3, 0]
    assert tokenizer.decode([tokenizer.encode(["€"], "target")[0]]) == [""]


def test_words_are_divided_only_into_pieces_of_the_vocabulary(folder: Path, tmp_path: Path) -> None:
    def cut(config: dict[str, Any], vocabulary: Path) -> list[str]:
        """The pieces of a line, each as a name."""
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        given = Texts([vocabulary], [folder / "source.model"])
        tokenizer = read_joeynmt(folder, given).tokenizer
        return tokenizer.names(tokenizer.encode(["the dog"])[0], "source")

    config = configured(pre=False, tied=True)
    text = (folder / "src_vocab.txt").read_text("utf-8")
    longest = max(cut(config, folder / "src_vocab.txt"), key=len).replace(" ", "▁")
    assert len(longest) > 2
    (tmp_path / "less.txt").write_text(text.replace(f"\n{longest}\n", "\nother\n"), "utf-8")
    assert "".join(cut(config, tmp_path / "less.txt")) == " the dog"
    config["data"] = {"src": "en", "trg": "de", "level": "bpe"}  # JoeyNMT 1 reads text that is cut
    assert "<unk>" in cut(config, tmp_path / "less.txt")


@pytest.mark.parametrize("table", [torch.ones(1, 50, 12), torch.ones(5, 7), torch.tensor(1.0)])
def test_positions_that_are_no_sinusoids_are_refused(tmp_path: Path, table: Tensor) -> None:
    write_joey(tmp_path / "theirs", pre=False, tied=True)
    path = tmp_path / "theirs" / "5.ckpt"
    held = torch.load(path)
    held["model_state"]["encoder.pe.pe"] = table
    torch.save(held, path)
    with pytest.raises(ModelError, match=r"encoder\.pe\.pe holds other positions"):
        read_joeynmt(tmp_path / "theirs")
