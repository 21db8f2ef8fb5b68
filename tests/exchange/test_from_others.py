"""Models of marian-nmt, OpenNMT-py and torch.nn compute as their formats define."""

import json
import math
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import Tensor

from cli.refusing import refused, regard
from exchange.imported import opened, ours, translates
from exchange.marian_models import cutter, pieces, vocabulary
from exchange.references import (
    Paper,
    interleaved,
    marian_logits,
    marian_weights,
    normal,
    renamed,
)
from regard.errors import ModelError, RecipeError
from regard.exchange.texts import SpecialNames, Texts, read_vocabulary_of, tokenizer_of


@pytest.fixture
def spm(tmp_path: Path) -> list[str]:
    """The options that name two SentencePiece models."""
    options = []
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(cutter(side))
        options += ["--spm", str(tmp_path / f"{side}.spm")]
    return options


MARIAN = {
    "usual": {"tied": "all", "pre": False, "activation": "swish", "depths": (2, 1)},
    "norms first": {"tied": "all", "pre": True, "activation": "relu", "depths": (1, 2)},
    "two vocabularies": {"tied": "target", "pre": False, "activation": "relu", "depths": (1, 1)},
    "untied": {"tied": "none", "pre": False, "activation": "swish", "depths": (1, 1)},
}


def write_npz(path: Path, weights: dict[str, Tensor], config: dict[str, Any]) -> None:
    text = np.frombuffer(yaml.safe_dump(config).encode() + b"\0", np.int8)
    arrays = {name: tensor.numpy() for name, tensor in weights.items()}
    np.savez(path, **{"special:model.yml": text}, **arrays)


def marian_config(d: int, ff: int, shape: dict[str, Any]) -> dict[str, Any]:
    pre, tied = shape["pre"], shape["tied"]
    return {
        "type": "transformer", "version": "v1.10.0", "dim-emb": d, "transformer-dim-ffn": ff,
        "enc-depth": shape["depths"][0], "dec-depth": shape["depths"][1], "transformer-heads": 3,
        "transformer-ffn-activation": shape["activation"], "transformer-ffn-depth": 2,
        "transformer-preprocess": "n" if pre else "", "transformer-postprocess-emb": "d",
        "transformer-postprocess": "da" if pre else "dan",
        "transformer-postprocess-top": "n" if pre else "",
        "transformer-decoder-autoreg": "self-attention", "transformer-tied-layers": [],
        "tied-embeddings": tied == "target", "tied-embeddings-src": False,
        "tied-embeddings-all": tied == "all",
    }  # fmt: skip


def yml(known: dict[str, int]) -> str:
    """A vocabulary as marian-vocab writes it: a piece in quotes if it needs them."""
    return "".join(f"{json.dumps(piece, ensure_ascii=False)}: {i}\n" for piece, i in known.items())


@pytest.mark.parametrize("shape", MARIAN.values(), ids=MARIAN)
def test_marian(tmp_path: Path, spm: list[str], shape: dict[str, Any]) -> None:
    torch.manual_seed(2)
    models = [cutter("source"), cutter("target")]
    known = [vocabulary(*models, end=0, pad=-1)]
    if shape["tied"] != "all":
        known = [vocabulary(model, end=0, pad=-1) for model in models]
    options = []
    for i, one in enumerate(known):
        (tmp_path / f"vocab{i}.yml").write_text(yml(one), "utf-8")
        options += ["--vocab", tmp_path / f"vocab{i}.yml"]
    sizes = len(known[0]), len(known[-1])
    weights = marian_weights(sizes, 12, 20, shape["depths"], pre=shape["pre"], tied=shape["tied"])
    weights["decoder_ff_logit_out_b"][0, 0] += 9  # it soon writes </s>
    write_npz(tmp_path / "model.npz", weights, marian_config(12, 20, shape))
    done = regard(
        "import", "marian", tmp_path / "model.npz", *options, *spm, "--out", tmp_path / "ours"
    )
    model = opened(done, tmp_path / "ours")
    assert model.recipe.model.norm_epsilon == 1e-6  # too small to be seen in these logits
    for source, target in (([5, 9, 7, 0], [4, 8, 11, 3]), ([0], []), ([3] * 40 + [0], [6] * 30)):
        expected = marian_logits(
            weights, source, target,
            heads=3, activation=shape["activation"], pre=shape["pre"],
        )  # fmt: skip
        difference = (ours(model, source, target) - expected).abs().max()
        assert difference < 1e-4 * (expected.max() - expected.min())
    if shape is MARIAN["two vocabularies"]:
        translates(tmp_path / "ours")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "amun"}, "type is 'amun'"),
        ({"transformer-ffn-activation": "gelu"}, "'gelu'"),
        ({"transformer-decoder-autoreg": "rnn"}, "autoreg is 'rnn'"),
        ({"transformer-train-position-embeddings": True}, "position-embeddings is True"),
        ({"transformer-ffn-depth": 3}, "ffn-depth is 3"),
        ({"transformer-postprocess": "danh"}, "postprocess is 'danh'"),
        ({"dim-emb": 10**9}, "d_model"),
        ({"dim-emb": 24}, "asks for"),
        ({"enc-depth": None}, "has no enc-depth"),
        ({"lemma-dim-emb": 5}, "lemma-dim-emb is 5"),
        ({"right-left": True}, "right-left is True"),
    ],
)
def test_marian_refusals(tmp_path: Path, spm: list[str], change: dict[str, Any], said: str) -> None:
    known = vocabulary(cutter("source"), cutter("target"), end=0, pad=-1)
    (tmp_path / "vocab.json").write_text(json.dumps(known))
    shape = MARIAN["usual"]
    weights = marian_weights((len(known),) * 2, 12, 20, (2, 1), pre=False, tied="all")
    write_npz(tmp_path / "model.npz", weights, marian_config(12, 20, shape) | change)
    options = ["--vocab", tmp_path / "vocab.json", *spm, "--out", tmp_path / "ours"]
    assert said in refused("import", "marian", tmp_path / "model.npz", *options)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"a": np.array([{}], object)}, "Object arrays cannot be loaded"),
        ({"a": np.ones(3)}, "not a model of marian-nmt"),
        ({"special:model.yml": np.frombuffer(b"a: &a [1]\nb: *a", np.int8)}, "aliases"),
        ({"special:model.yml": np.frombuffer(b"!!python/object:os.x {}", np.int8)}, "not YAML"),
        ({"special:model.yml": np.frombuffer(b"a: !!bool maybe", np.int8)}, "not YAML"),
        ({"special:model.yml": np.frombuffer(b"a: !!timestamp 1", np.int8)}, "not YAML"),
        ({"special:model.yml": np.frombuffer(b"[" * 10**5, np.int8)}, "nested too deep"),
        ({"special:model.yml": np.frombuffer(b"\xff\xfe", np.uint8)}, "not text"),
        ({"special:model.yml": np.frombuffer(b"- 1", np.int8)}, "not a configuration"),
    ],
)
def test_files_that_are_not_marians(
    tmp_path: Path, spm: list[str], arrays: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "model.npz", **arrays)
    assert said in refused(
        "import", "marian", tmp_path / "model.npz", *spm, "--out", tmp_path / "o"
    )


def test_marian_files_of_other_kinds(tmp_path: Path, spm: list[str]) -> None:
    np.savez_compressed(tmp_path / "small.npz", a=np.zeros(10**6, np.float32))
    said = refused("import", "marian", tmp_path / "small.npz", *spm, "--out", tmp_path / "o")
    assert "compressed" in said
    (tmp_path / "model.bin").write_bytes(b"1234")
    said = refused("import", "marian", tmp_path / "model.bin", *spm, "--out", tmp_path / "o")
    assert said == f"{tmp_path / 'model.bin'}: not a .npz file: name the model of marian-nmt"


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("shared", [False, True])
def test_opennmt(tmp_path: Path, spm: list[str], shared: bool) -> None:
    torch.manual_seed(8)
    paper = Paper(12, 3, 14, (2, 1), norm_first=True, layer_norm_eps=1e-6)
    specials = ["<unk>", "<blank>", "<s>", "</s>"]
    own = [[*specials, *pieces(cutter(side))] for side in ("source", "target")]
    if shared:
        own = [list(dict.fromkeys(own[0] + own[1]))] * 2
    source, target = (normal(len(one), 12, std=1.0) for one in own)
    if shared:
        target = source
    output, bias = target if shared else normal(len(own[1]), 12), normal(len(own[1]))
    bias[specials.index("</s>")] += 9  # it soon writes </s>
    names = {
        "encoder.self": "self_attn", "decoder.self": "self_attn", "decoder.cross": "context_attn",
        "ff.1": "feed_forward.w_1", "ff.2": "feed_forward.w_2", "encoder.1.norm": "layer_norm",
        "encoder.2.norm": "feed_forward.layer_norm", "decoder.1.norm": "layer_norm_1",
        "decoder.2.norm": "layer_norm_2", "decoder.3.norm": "feed_forward.layer_norm",
    }  # fmt: skip
    stacks = {"encoder": "encoder.transformer.", "decoder": "decoder.transformer_layers."}
    order = "linear_query linear_keys linear_values final_linear"
    state = renamed(paper, names, order, stacks)
    for stack, table in (("encoder", source), ("decoder", target)):
        place = f"{stack}.embeddings.make_embedding"
        state[f"{place}.emb_luts.0.weight"] = table
        state[f"{place}.pe.pe"] = interleaved(60, 12)[:, None]
        for end in ("weight", "bias"):
            norm = getattr(paper.transformer, stack).norm
            state[f"{stack}.layer_norm.{end}"] = getattr(norm, end).detach().clone()
    options = Namespace(
        encoder_type="transformer", decoder_type="transformer", hidden_size=12, enc_layers=2,
        dec_layers=1, heads=3, transformer_ff=14, position_encoding=True, max_relative_positions=0,
        pos_ffn_activation_fn="relu", self_attn_type="scaled-dot", share_embeddings=shared,
    )  # fmt: skip
    content: dict[str, Any] = {
        "model": state, "generator": {"weight": output, "bias": bias}, "opt": options,
        "vocab": {"src": own[0], "tgt": own[1]}, "optim": None,
    }  # fmt: skip
    torch.save(content, tmp_path / "model.pt")
    done = regard("import", "opennmt", tmp_path / "model.pt", *spm, "--out", tmp_path / "ours")
    model = opened(done, tmp_path / "ours")
    assert model.recipe.search.max_extra == 250
    ids, written = [7, 9, 8], [10, 4, 5]  # its sources do not end in </s>
    x = source[ids] * math.sqrt(12) + interleaved(3, 12)
    y = target[[2, *written]] * math.sqrt(12) + interleaved(4, 12)
    expected = paper.states(x, y) @ output.T + bias
    assert torch.allclose(ours(model, [*ids, 3], written), expected, atol=1e-4)
    if shared:
        translates(tmp_path / "ours")
    for key, value in (("max_relative_positions", 20), ("pos_ffn_activation_fn", "silu")):
        content["opt"] = Namespace(**(vars(options) | {key: value}))
        torch.save(content, tmp_path / "other.pt")
        said = refused("import", "opennmt", tmp_path / "other.pt", *spm, "--out", tmp_path / "no")
        assert f"{key} is {value!r}" in said
    for part in ("model", "generator"):
        torch.save(content | {"opt": options, part: None}, tmp_path / "other.pt")
        said = refused("import", "opennmt", tmp_path / "other.pt", *spm, "--out", tmp_path / "no")
        assert "not a state dict: names and tensors are needed, not NoneType" in said
    content |= {"opt": options, "vocab": content["vocab"] | {"decoder_start_token": "</s>"}}
    torch.save(content, tmp_path / "other.pt")
    said = refused("import", "opennmt", tmp_path / "other.pt", *spm, "--out", tmp_path / "no")
    assert "decoder_start_token is '</s>'" in said


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("positions", ["stored", "random", "none"])
def test_torch(tmp_path: Path, spm: list[str], norm_first: bool, positions: str) -> None:
    torch.manual_seed(9)
    paper = Paper(12, 4, 10, (1, 2), norm_first=norm_first, activation="gelu")
    known = vocabulary(cutter("source"), cutter("target"), end=2, pad=0)
    known = {"<s>" if i == 1 else piece: i for piece, i in known.items()} | {"<unk>": len(known)}
    (tmp_path / "vocab.json").write_text(json.dumps(known))
    size = len(known)
    source, target, output = (normal(size, 12, std=1.0) for _ in range(3))
    bias = normal(size)
    bias[2] += 9  # it soon writes </s>
    table = interleaved(60, 12) if positions != "random" else normal(60, 12, std=1.0)
    state = {f"transformer.{k}": v for k, v in paper.transformer.state_dict().items()}
    state |= {
        "src_tok_emb.embedding.weight": source, "tgt_tok_emb.embedding.weight": target,
        "generator.weight": output, "generator.bias": bias,
    }  # fmt: skip
    if positions != "none":
        state["positional_encoding.pos_embedding"] = table[:, None]
    torch.save({"model_state_dict": state, "epoch": 4}, tmp_path / "model.pt")
    done = regard(
        "import", "torch", tmp_path / "model.pt", "--heads", "4", "--activation", "gelu", *spm,
        "--vocab", tmp_path / "vocab.json", *["--norm-first"] * norm_first,
        *["--no-scale", "--positions=sinusoidal"] * (positions == "none"),
        "--out", tmp_path / "ours",
    )  # fmt: skip
    model = opened(done, tmp_path / "ours")
    scale = 1.0 if positions == "none" else math.sqrt(12)
    ids, written = [7, 9, 8, 2], [10, 4, 5]
    x, y = source[ids] * scale + table[:4], target[[1, *written]] * scale + table[:4]
    expected = paper.states(x, y) @ output.T + bias
    assert torch.allclose(ours(model, ids, written), expected, atol=1e-4)
    assert model.recipe.model.positions == ("learned" if positions == "random" else "sinusoidal")
    if positions == "random" and not norm_first:
        translates(tmp_path / "ours")


def test_torch_asks_which_matrix_is_which(tmp_path: Path, spm: list[str]) -> None:
    paper = Paper(12, 4, 10, (1, 1))
    state = {f"net.{k}": v for k, v in paper.transformer.state_dict().items()}
    state |= {name: normal(9, 12) for name in ("a.weight", "b.weight", "c.weight")}
    torch.save(state, tmp_path / "model.pt")
    command = (
        "import",
        "torch",
        tmp_path / "model.pt",
        "--heads",
        "4",
        *spm,
        "--out",
        tmp_path / "o",
    )
    assert "Give --generator NAME; there are: a.weight, b.weight, c.weight" in refused(*command)
    assert "--source-embedding NAME" in refused(*command, "--generator", "c")
    torch.save({"a": torch.ones(2)}, tmp_path / "model.pt")
    assert "has 0 nn.Transformer" in refused(*command)


def test_a_language_code_is_a_piece_if_the_sentencepiece_model_lacks_it(
    tmp_path: Path, spm: list[str]
) -> None:
    known = {"</s>": 0, ">>deu<<": 1, "<unk>": 2}
    known |= {piece: i for i, piece in enumerate(pieces(cutter("source")), 3)}
    (tmp_path / "v.json").write_text(json.dumps(known), "utf-8")
    cutters = [Path(spm[1])]
    texts, sizes = Texts([tmp_path / "v.json"], cutters), (len(known),) * 2
    tokenizer = tokenizer_of(texts, sizes, SpecialNames(None, None))
    ids = tokenizer.encode([">>deu<< the dog", "the dog"])
    assert tokenizer.names(ids[0], "source")[0] == ">>deu<<"
    assert ids[0][1:] == ids[1]
    tokenizer = tokenizer_of(Texts(cutters=cutters), (50, 50), SpecialNames(None, None))
    assert tokenizer.prefix(">>deu<< the dog") == ""


@pytest.mark.parametrize("languages", [["EN"], ["en", "zh_CN"]])
def test_a_language_that_moses_rules_lack_is_refused_by_name(
    tmp_path: Path, languages: list[str]
) -> None:
    (tmp_path / "v.txt").write_text("</s>\n<unk>\n")
    texts = Texts([tmp_path / "v.txt"], languages=languages)
    with pytest.raises(RecipeError, match=f"'{languages[-1]}' is no language"):
        tokenizer_of(texts, (2, 2), SpecialNames(None, None))


def test_an_option_is_given_for_two_sides_at_most() -> None:
    with pytest.raises(RecipeError, match="--spm 3 times: give it once, or once for the source"):
        tokenizer_of(Texts(cutters=[Path("s")] * 3), (2, 2), SpecialNames(None, None))


def test_files_of_one_name_have_a_checksum_each(tmp_path: Path) -> None:
    weights, source, target = (tmp_path / name for name in ("w.bin", "en/v.txt", "de/v.txt"))
    for path in (weights, source, target):
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(path))
    checksums = Texts(vocabularies=[source, target, source]).checksums(weights)
    assert set(checksums) == {"w.bin", str(source), str(target)}
    assert len(set(checksums.values())) == 3


def test_a_yaml_vocabulary_is_read_line_by_line(tmp_path: Path) -> None:
    text = '</s>: 0\n<unk>: 1\n"\\"": 2\n\'it\'\'s\': 3\n"\\x41": 4\n? long\n: 5\na:b: 6\n'
    text += '"\\u2581x": 7\n"\\_": 8\n_: 9\n"\\L\\P\\N\\a\\/": 10\n'
    (tmp_path / "v.yml").write_text(text)
    known = read_vocabulary_of(tmp_path / "v.yml")
    assert list(known) == ["</s>", "<unk>", '"', "it's", "A", "long", "a:b", "▁x", "\xa0", "_",
                           "\u2028\u2029\x85\a/"]  # fmt: skip
    assert list(known.values()) == list(range(11))


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nb: 1\n",
        "a: 1\na: 2\n",
        "a\n",
        "a: x\n",
        "",
        "a: -1\n",
        f"a: {'9' * 5000}\n",
        '"\\ud83d\\ude00": 0\n',
        '"\\x+4": 0\n',
        '"\\q": 0\n',
        '"\\x4": 0\n',
        '"\\xyz": 0\n',
        '"\\UFFFFFFFF": 0\n',
        '"a\\": 0\n',
        "? lost\n<unk>: 1\n",
        "? lost\n? lost\n: 1\n",
        "<unk>: 1\n? lost\n",
    ],
)
def test_a_damaged_yaml_vocabulary_is_refused(tmp_path: Path, spm: list[str], text: str) -> None:
    (tmp_path / "v.yml").write_text(text)
    weights = marian_weights((9, 9), 12, 20, (2, 1), pre=False, tied="all")
    write_npz(tmp_path / "model.npz", weights, marian_config(12, 20, MARIAN["usual"]))
    said = refused(
        "import", "marian", tmp_path / "model.npz", "--vocab", tmp_path / "v.yml", *spm,
        "--out", tmp_path / "o",
    )  # fmt: skip
    assert "v.yml" in said


def test_a_piece_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"</s>": 0, "<unk>": 1, "\\ud800": 2}')
    with pytest.raises(ModelError, match=r"vocab\.json: a piece has a lone surrogate"):
        tokenizer_of(Texts([tmp_path / "v.json"]), (3, 3), SpecialNames(None, None))
