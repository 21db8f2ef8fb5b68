"""ONNX Runtime computes the model; regard's own search asks it for one step at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.rows import Rows
from regard.engines.exported import Exported
from regard.engines.translator import EngineModel, EngineTranslator
from regard.errors import MissingExtra, ModelError
from regard.hypotheses import Hypothesis
from regard.recipe import SearchRecipe
from regard.search import search

try:
    import onnxruntime
except ModuleNotFoundError:
    raise MissingExtra("--engine onnx", "exchange") from None


@dataclass(frozen=True)
class Caches:
    """The state of regard's search: the inputs of the decoder's next step, except the tokens.

    Each array has one row for each hypothesis.
    """

    arrays: dict[str, NDArray[Any]]

    def select(self, rows: Tensor) -> Caches:
        """The state that consists of the rows with the indices `rows`, in this order."""
        these = rows.flatten().numpy()
        if len(these) == len(self.arrays["source"]) and (these == np.arange(len(these))).all():
            return self
        return Caches({name: values[these] for name, values in self.arrays.items()})


class OnnxModel(EngineModel):
    """The ONNX graphs of the encoder and the decoder, as a model that regard's search can use.

    Raises ModelError if ONNX Runtime cannot open the graphs.
    """

    def __init__(self, exported: Exported, threads: int):
        super().__init__(exported.manifest["positions"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = threads, 3
        try:
            self.encoder, self.decoder = (
                onnxruntime.InferenceSession(
                    str(exported.directory / f"{name}.onnx"),
                    options,
                    providers=["CPUExecutionProvider"],
                )
                for name in ("encoder", "decoder")
            )
        except Exception as error:  # ONNX Runtime raises exceptions of its own
            raise ModelError(f"{exported.directory}: ONNX Runtime refuses it: {error}") from None
        self.memory = [output.name for output in self.encoder.get_outputs()]
        self.results = [output.name for output in self.decoder.get_outputs()]

    def start(self, source: Rows) -> Caches:
        """The state before the first token, with one row for each sentence."""
        ids = source.ids.long().numpy()
        found = dict(zip(self.memory, self.encoder.run(self.memory, {"source": ids}), strict=True))
        past = {name.replace("memory", "past"): its[:, :, :0] for name, its in found.items()}
        return Caches({"source": ids, **found, **past})

    def step(self, tokens: Tensor, state: Caches) -> tuple[Tensor, Caches]:
        """[rows, vocabulary] The logits of each row's next token, and the state after `tokens`.

        A row is a hypothesis. `tokens` [rows] has the last token of each row.
        """
        given = {"tokens": tokens.long().numpy(), **state.arrays}
        found = dict(zip(self.results, self.decoder.run(self.results, given), strict=True))
        logits = torch.from_numpy(found.pop("logits"))
        past = {f"past_{name}": values for name, values in found.items()}
        return logits, Caches({**state.arrays, **past})


class OnnxTranslator(EngineTranslator):
    """A translator: ONNX Runtime computes the model, and regard's own search finds the outputs.

    Raises ModelError as `OnnxModel` does.
    """

    model: OnnxModel

    def __init__(self, exported: Exported, threads: int):
        super().__init__(OnnxModel(exported, threads), exported)

    @property
    def versions(self) -> Mapping[str, str]:
        """Maps "onnxruntime" to the version of ONNX Runtime."""
        return {"onnxruntime": onnxruntime.__version__}

    def found(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        recipe: SearchRecipe,
        n_best: int,
    ) -> list[list[Hypothesis]]:
        """Up to `n_best` hypotheses of each source, found by regard's own search, best first.

        See `EngineTranslator.found`.
        """

        def searched(rows: Rows, _: Tensor, batch: list[int]) -> list[list[Hypothesis]]:
            most = torch.tensor([limits[i] for i in batch])
            return search(self.model, rows, most, recipe, by=self.model.by, n_best=n_best)

        return self.hypotheses(sources, searched, here=True)
