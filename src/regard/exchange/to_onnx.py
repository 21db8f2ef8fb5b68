"""Write a model as ONNX: encoder.onnx, decoder.onnx, and a program that decodes without regard."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from regard.errors import MissingExtra
from regard.exchange.onnx_graph import decoder_graph, encoder_graph
from regard.exchange.parts import copied_weights, tables_of
from regard.run.model_directory import Model

try:
    import onnx
except ModuleNotFoundError:
    raise MissingExtra("ONNX", "exchange") from None

LOOP = "translate_ids.py"
"""The name of the decoding program beside the graphs; the program is a copy of onnx_loop.py."""
_APART = 2**30
"""If the weights have more bytes than this, each graph has a second file, for its weights. A file
that contains a graph cannot have more than 2 GiB; half of that leaves a margin."""


def write_onnx(model: Model, folder: Path) -> None:
    """Write both graphs and the decoding program into a folder; onnx.checker checks the graphs."""
    recipe, tables, weights = model.recipe.model, tables_of(model), copied_weights(model)
    apart = sum(values.nbytes for values in weights.values()) > _APART
    for name, graph in (
        ("encoder", encoder_graph(recipe, weights, tables.source)),
        ("decoder", decoder_graph(recipe, weights, tables.target)),
    ):
        path = folder / f"{name}.onnx"
        onnx.save_model(
            graph, path, save_as_external_data=apart,
            location=f"{name}.weights" if apart else None,
        )  # fmt: skip
        onnx.checker.check_model(path, full_check=True)
    loop = importlib.resources.files("regard.exchange") / "onnx_loop.py"
    (folder / LOOP).write_text(loop.read_text("utf-8"), "utf-8")
