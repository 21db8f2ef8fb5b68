"""An untrained translator that records the batches it is given."""

import torch

from regard.arithmetic.choose import for_inference
from regard.data.rows import Rows
from regard.decoder_state import DecoderState
from regard.recipe import Recipe
from regard.text.tokenizer import Tokenizer
from regard.transformer import Transformer
from regard.translation import Translator
from run.copying import RECIPE, strings

TOKENIZER = Tokenizer.learn(strings(97, seed=1), "bpe", 300)
BRIEF = RECIPE.but(max_extra=5)
LINES = strings(23, seed=2, longest=19)


class Heard(Transformer):
    """Records the batches that it is given."""

    def __init__(self, recipe: Recipe):
        super().__init__(recipe.model, TOKENIZER.size)
        self.batches: list[Rows] = []

    def start(self, source: Rows) -> DecoderState:
        self.batches.append(source)
        return super().start(source)

    @property
    def sources(self) -> list[list[int]]:
        """The sources of all batches, without padding."""
        return [
            ids[: int((segments != 0).sum())].tolist()
            for batch in self.batches
            for ids, segments in zip(batch.ids, batch.segments, strict=True)
        ]


def translator(recipe: Recipe = BRIEF, longest: int = 61) -> Translator:
    """An untrained model; its output is nonsense, but depends on the source."""
    torch.manual_seed(3)
    model = Heard(recipe).eval()
    model.compute_by(for_inference(torch.device("cpu"), torch.float32))
    return Translator(model, TOKENIZER, recipe.search, longest)
