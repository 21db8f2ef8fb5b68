"""Directories of MarianMTModel with random weights, as `save_pretrained` writes them."""

import io
import json
import random
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

sentencepiece = pytest.importorskip("sentencepiece")
transformers = pytest.importorskip("transformers")

WORDS = {
    "source": "the a dog cat house sees runs big small red green with and under over man woman",
    "target": "der die das hund katze haus sieht läuft groß klein rot grün mit und unter über",
}


def lines(side: str, count: int, seed: int) -> list[str]:
    """Sentences of random words."""
    draw = random.Random(seed)
    words = WORDS[side].split()
    return [" ".join(draw.choices(words, k=draw.randint(1, 9))) + "." for _ in range(count)]


@cache
def cutter(side: str, kind: str = "unigram", size: int = 50) -> bytes:
    """A SentencePiece model for the text of a side."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines(side, 200, seed=len(side))),
        model_writer=model,
        vocab_size=size,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        num_threads=1,
    )
    return model.getvalue()


def pieces(model: bytes) -> list[str]:
    """The pieces of a SentencePiece model, without its special ones."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(i) for i in range(3, len(processor))]


def vocabulary(*models: bytes, end: int, pad: int, unused: int = 0) -> dict[str, int]:
    """Ids for the pieces of models, with </s> and <pad> at these ids, which may be negative."""
    known = ["<unk>", *dict.fromkeys(piece for model in models for piece in pieces(model))]
    known += [f"unused{i}" for i in range(unused)]
    size = len(known) + 2
    places = {end % size: "</s>", pad % size: "<pad>"}
    rest = iter(known)
    return {places[i] if i in places else next(rest): i for i in range(size)}


def write_text_files(
    folder: Path, known: dict[str, int], target: dict[str, int] | None, kind: str
) -> None:
    """The files of MarianTokenizer."""
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(cutter(side, kind))
    (folder / "vocab.json").write_text(json.dumps(known), "utf-8")
    config: dict[str, Any] = {"source_lang": "en", "target_lang": "de"}
    if target is not None:
        (folder / "target_vocab.json").write_text(json.dumps(target), "utf-8")
        config |= {"separate_vocabs": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")


def write_marian(
    folder: Path,
    *,
    end: int = 0,
    pad: int = -1,
    start: int | None = None,
    unused: int = 0,
    kind: str = "unigram",
    separate: bool = False,
    rows: int = 0,
    bias: bool = False,
    ends: float = 1.0,
    forbids_pad: bool = True,
    pickled: bool = False,
    generation: dict[str, Any] | None = None,
    seed: int = 0,
    **config: Any,
) -> Any:
    """Write a directory and return its model; `rows` are entries beyond the vocabulary,
    `ends` is added to the bias of </s>.
    """
    folder.mkdir(parents=True)
    models = [cutter(side, kind) for side in ("source", "target")]
    known = vocabulary(*models, end=end, pad=pad, unused=unused)
    target = None
    if separate:
        known = vocabulary(models[0], end=end, pad=pad)
        target = vocabulary(models[1], end=end, pad=known["<pad>"], unused=unused)
    write_text_files(folder, known, target, kind)
    sizes = len(known) + rows, len(target or known) + rows
    pad_id = (target or known)["<pad>"]
    ids = {
        "pad_token_id": pad_id,
        "eos_token_id": known["</s>"],
        "decoder_start_token_id": pad_id if start is None else start % sizes[1],
        "forced_eos_token_id": None,
    }
    small = {
        "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 20, "decoder_ffn_dim": 20,
        "activation_function": "swish", "scale_embedding": True, "max_position_embeddings": 64,
        "init_std": 0.3,
    }  # fmt: skip
    torch.manual_seed(seed)
    model = transformers.MarianMTModel(
        transformers.MarianConfig(
            vocab_size=sizes[0],
            decoder_vocab_size=sizes[1],
            share_encoder_decoder_embeddings=not separate,
            **ids,
            **(small | config),
        )
    ).eval()
    with torch.no_grad():
        if bias:
            model.final_logits_bias.normal_()
            model.final_logits_bias[0, ids["eos_token_id"]] += ends
        if rows:  # MarianTokenizer cannot name them
            model.final_logits_bias[0, -rows:] = -50
        for module in model.modules():  # so that no weight of a LayerNorm or bias is forgotten
            if isinstance(module, torch.nn.LayerNorm):
                module.weight.normal_(1, 0.2)
                module.bias.normal_(0, 0.2)
            elif isinstance(module, torch.nn.Linear) and module.bias is not None:
                module.bias.normal_(0, 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.save_pretrained(folder)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    settings = {"num_beams": 4, "max_length": 12}
    if forbids_pad:
        settings |= {"bad_words_ids": [[pad_id]]}
    transformers.GenerationConfig(**(ids | settings | (generation or {}))).save_pretrained(folder)
    return model
