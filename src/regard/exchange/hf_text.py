"""Write a tokenizer as files that `transformers` can open by from_pretrained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.text.foreign.sentence_pieces import SentencePieceTokenizer
from regard.text.protocol import AnyTokenizer
from regard.text.tokenizer import BOS, EOS, PAD, SPECIAL, Tokenizer

OURS = "regard.tokenizer.json"
"""The name of the tokenizer file for regard; the name tokenizer.json is for `transformers`."""


def write_text_files(tokenizer: AnyTokenizer, positions: int, folder: Path) -> None:
    """Write the tokenizer's files into a folder.

    The files tell `transformers` that a text may have at most `positions` tokens. The tokenizer
    must be regard's own, or one whose files MarianTokenizer can open. Otherwise, raises ModelError.
    """
    if isinstance(tokenizer, Tokenizer):
        _write_ours(tokenizer, positions, folder)
    elif isinstance(tokenizer, SentencePieceTokenizer) and _is_marian(tokenizer):
        _write_marian(tokenizer, positions, folder)
    else:
        kind = getattr(tokenizer, "kind", "foreign")
        raise ModelError(f"a tokenizer of kind {kind}: export hf writes regard's own and Marian's")


def _write_ours(tokenizer: Tokenizer, positions: int, folder: Path) -> None:
    """Write tokenizer.json for the library `tokenizers`, and tokenizer_config.json.

    With this tokenizer.json, the library adds </s> to each text. Another file, with the name OURS,
    is written for regard itself.
    """
    tokenizer.save(folder / "tokenizer.json")
    content = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    tokenizer.save(folder / OURS)
    name, end = SPECIAL[EOS], {"id": SPECIAL[EOS], "ids": [EOS], "tokens": [SPECIAL[EOS]]}
    sentence, special = {"Sequence": {"id": "A", "type_id": 0}}, {"id": name, "type_id": 0}
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [sentence, {"SpecialToken": special}],
        "pair": [sentence, {"SpecialToken": special}],
        "special_tokens": {name: end},
    }
    write_json(folder / "tokenizer.json", content)
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": SPECIAL[BOS],
        "eos_token": SPECIAL[EOS],
        "pad_token": SPECIAL[PAD],
        "model_max_length": positions,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,  # with True, a typed "</s>" is read as plain text
        "model_input_names": ["input_ids", "attention_mask"],
    }
    write_json(folder / "tokenizer_config.json", configuration)


def _is_marian(tokenizer: SentencePieceTokenizer) -> bool:
    """Whether MarianTokenizer can open the files, and then divides text as `tokenizer` does."""
    rules, needed = tokenizer.settings, {"source.spm", "target.spm", "vocab.json"}
    return rules.language_codes and not rules.restricted and needed <= tokenizer.files.keys()


def _write_marian(tokenizer: SentencePieceTokenizer, positions: int, folder: Path) -> None:
    """Write the tokenizer's original files, the file OURS for regard, and tokenizer_config.json."""
    tokenizer.save(folder / OURS)  # `save` writes the original files, too
    end, unknown, pad = (*tokenizer.settings.skipped, "<pad>")[:3]
    write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "eos_token": end,
            "unk_token": unknown,
            "pad_token": pad,
            "separate_vocabs": not tokenizer.shared,
            "model_max_length": positions,
            "clean_up_tokenization_spaces": tokenizer.settings.tidied,
        },
    )


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write an object as a file of JSON, indented as in the files of Hugging Face."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
