"""Open an exported directory with an engine, CTranslate2 or ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from regard.engines.exported import Exported, open_exported
from regard.engines.translator import EngineTranslator
from regard.errors import unknown

ENGINES = ("ctranslate2", "onnx")
"""The programs that can compute an exported model in place of regard."""


def load_exported(directory: str | Path, engine: str) -> EngineTranslator:
    """Open an exported directory for translation; the engine uses as many threads as PyTorch.

    Raises RecipeError for an unknown engine, MissingExtra if the engine or a library that the
    tokenizer needs is not installed, and ModelError if the directory is missing or damaged, or was
    not exported for the engine, or if the engine cannot open the model.
    """
    # `translator_by` is called first, so that MissingExtra is raised even for a wrong directory.
    translator = translator_by(engine)
    return translator(open_exported(Path(directory), engine), torch.get_num_threads())


def translator_by(engine: str) -> Callable[[Exported, int], EngineTranslator]:
    """The engine's translator class; its arguments are an `Exported` and the number of threads.

    Raises RecipeError for an unknown engine, and MissingExtra if the engine is not installed.
    """
    if engine == "ctranslate2":
        from regard.engines.with_ctranslate2 import CTranslate2Translator

        return CTranslate2Translator
    if engine == "onnx":
        from regard.engines.with_onnx import OnnxTranslator

        return OnnxTranslator
    raise unknown("engine", engine, list(ENGINES))
