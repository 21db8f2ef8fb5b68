"""Open an exported directory with an engine."""

from __future__ import annotations

from pathlib import Path

import torch

from regard.engines.translator import EngineTranslator
from regard.errors import unknown

ENGINES = ("ctranslate2", "onnx")
"""The programs that can compute an exported model in place of regard."""


def load_exported(directory: str | Path, engine: str) -> EngineTranslator:
    """Open an exported directory for translation; the engine uses as many threads as PyTorch.

    Raises RecipeError for an unknown engine, MissingExtra if the engine is not installed, and
    ModelError if the directory was not exported for the engine.
    """
    threads = torch.get_num_threads()
    if engine == "ctranslate2":
        from regard.engines.with_ctranslate2 import load_ctranslate2

        return load_ctranslate2(Path(directory), threads)
    if engine == "onnx":
        from regard.engines.with_onnx import load_onnx

        return load_onnx(Path(directory), threads)
    raise unknown("engine", engine, list(ENGINES))
