"""Write a model as a package of Argos Translate; LibreTranslate installs such packages, too.

A package is a zip file of one folder. The folder holds metadata.json, sentencepiece.model,
README.md, the certificate, and `model`, a directory in CTranslate2's format. Argos Translate has
its own settings for beam search, so the search settings in the model's recipe have no effect.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from regard import __version__
from regard.errors import ModelError, RecipeError
from regard.exchange.cards import argos_card
from regard.exchange.certificate import Certificate
from regard.exchange.spm import Pieces, refuse_other_cuts, sentence_pieces
from regard.exchange.to_ctranslate2 import write_ctranslate2
from regard.exchange.vocabulary import entry_names
from regard.files.whole import new_file, parents_made, refusing_write_errors
from regard.run.model_directory import Model
from regard.text.foreign.sentence_pieces import SentencePieceTokenizer
from regard.text.tokenizer import Tokenizer

ENDING = ".argosmodel"


def write_argos(
    model: Model,
    out: Path,
    pair: str,
    lines: Sequence[str],
    precision: str,
    prove: Callable[[Path], Certificate],
) -> Certificate:
    """Write the package `out`, and return its certificate.

    `pair` names the languages, such as en-de. `lines` are text of both languages, on which the
    SentencePiece model is tested. `precision` is the number format. `prove` makes the certificate
    from the directory in CTranslate2's format.

    Raises RecipeError if `pair` does not name two different languages, or if the name of `out` does
    not end in ENDING; RegardError if `out` cannot be written; ModelError if CTranslate2 cannot
    compute the model, if Argos Translate divides one of `lines` differently from the model's
    tokenizer, or if Argos Translate does not join the pieces to the same line. Also raises the
    errors of `pieces_of` and `prove`.
    """
    source, target = _languages(pair)
    if out.suffix != ENDING:
        raise RecipeError(f"--out {out}: the name of a package ends in {ENDING}")
    pieces = pieces_of(model)
    refuse_other_cuts(pieces, model.tokenizer, lines)
    with (
        refusing_write_errors(out),
        parents_made(out),
        tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.absolute().parent) as temporary,
    ):
        folder = Path(temporary) / f"translate-{source}_{target}-1_0"
        (folder / "model").mkdir(parents=True)
        write_ctranslate2(model, folder / "model", precision, pieces.names)
        certificate = prove(folder / "model")
        certificate.write(folder)
        (folder / "sentencepiece.model").write_bytes(pieces.model)
        (folder / "metadata.json").write_text(_metadata(source, target), encoding="utf-8")
        (folder / "README.md").write_text(argos_card(model, source, target), encoding="utf-8")
        _pack(folder, out)
    return certificate


def _pack(folder: Path, out: Path) -> None:
    """Write the zip file `out`; all paths in the zip file begin with the name of `folder`."""
    with new_file(out) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted(folder.rglob("*")):
            package.write(path, path.relative_to(folder.parent))


def pieces_of(model: Model) -> Pieces:
    """The SentencePiece model of the tokenizer of `model`, and a name for each id of regard.

    For a tokenizer that regard learned, the SentencePiece model is made from the merges. Raises
    ModelError for a tokenizer of word pieces, and for a foreign tokenizer that has no SentencePiece
    model or has two vocabularies.
    """
    tokenizer = model.tokenizer
    if isinstance(tokenizer, Tokenizer):
        return sentence_pieces(tokenizer)
    if not isinstance(tokenizer, SentencePieceTokenizer) or not tokenizer.shared:
        raise ModelError(
            "a package of Argos Translate has one SentencePiece model and one vocabulary, which "
            "this model's tokenizer has not: export to ctranslate2 instead"
        )
    return Pieces(tokenizer.cutter, entry_names(tokenizer, "target"))


def _languages(pair: str) -> tuple[str, str]:
    found = re.fullmatch(r"([a-z]{2,3})-([a-z]{2,3})", pair)
    if found is None or found[1] == found[2]:
        raise RecipeError(f"--pair {pair or 'is missing'}: give two languages, such as en-de")
    return found[1], found[2]


def _metadata(source: str, target: str) -> str:
    content = {
        "package_version": "1.0",
        "argos_version": "1.11",
        "from_code": source,
        "from_name": source,
        "to_code": target,
        "to_name": target,
        "type": "translate",
        "written_by": f"regard {__version__}",
    }
    return json.dumps(content, indent=2) + "\n"
