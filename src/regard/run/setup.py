"""The setup of a run, which does not change: its recipe, its data, its device and processes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch

from regard.arithmetic.choose import choose_dtype
from regard.cost import Cost, flop_of_tokens
from regard.data.batches import Batches, BatchShare
from regard.data.characters import source_characters
from regard.data.pairs import Pairs
from regard.data.prefetch import Prefetched
from regard.data.training_data import batches_of, training_batches, training_pairs
from regard.encoder_decoder import EncoderDecoder
from regard.errors import RecipeError, TrainingError
from regard.machine.devices import choose_device, computes_beside, refuse_too_large
from regard.machine.processes import Processes
from regard.machine.speed import single_precision_speed
from regard.paper import parameters
from regard.recipe import Recipe, TrainingRecipe
from regard.run.first_embedding import begin_with_pairs
from regard.run.model_directory import matrices_misfit
from regard.run.sharding import Optimizer, model_and_optimizer
from regard.run.state import TrainingState
from regard.text.opening import open_tokenizer
from regard.text.protocol import AnyTokenizer
from regard.word_positions import know_words


@dataclass(frozen=True)
class Setup:
    """A recipe, opened data, and the device and processes of a run.

    Three words tell how work is divided: a batch has *parts*; a process has a *share* of the parts
    of each batch; and, if the model is divided, each process has a *shard* of each weight.
    """

    recipe: Recipe
    data: Path
    pairs: Pairs
    tokenizer: AnyTokenizer
    device: torch.device
    dtype: torch.dtype
    processes: Processes
    shard: bool
    """Whether weights and moments are divided among the processes, if there are several."""

    @classmethod
    def open(cls, recipe: Recipe, data: Path, processes: Processes, *, shard: bool) -> Setup:
        """Open prepared data and choose the device.

        Raises DataError or ModelError if the data is damaged. Raises TrainingError if the model, a
        pair of sentences or a row is too large, or if the recipe's embeddings do not fit the
        tokenizer. Also raises the errors of `training_pairs` (data unfit for sub-word dropout), of
        `open_tokenizer` (a library is missing), of `choose_device` (no usable GPU), of
        `choose_dtype` (int8 training on an unfit device) and, if the model is divided, of
        `_refuse_to_divide`.
        """
        pairs = training_pairs(data, recipe)
        tokenizer = open_tokenizer(data)
        device = choose_device()
        dtype = choose_dtype(recipe.training.precision, device)
        batches_of(pairs, recipe)  # refuses a pair that fits no batch
        setup = cls(recipe, data, pairs, tokenizer, device, dtype, processes, shard)
        if setup.shards > 1:
            _refuse_to_divide(recipe.training)
        if problem := matrices_misfit(recipe.model, tokenizer):
            raise TrainingError(f"{data}: {problem}")
        sizes = tokenizer.size, tokenizer.source_size
        refuse_too_large(parameters(recipe.model, *sizes), device, setup.shards)
        return setup

    @property
    def shards(self) -> int:
        """How many shards each weight has; 1 if each process has the whole model."""
        return self.processes.count if self.shard else 1

    @cached_property
    def fingerprints(self) -> dict[str, str]:
        """Checksums of data, validation set and tokenizer, to notice later changes of them."""
        return {
            "data": self.pairs.fingerprint,
            "validation": Pairs.open(self.data, "valid").fingerprint,
            "tokenizer": self.tokenizer.fingerprint,
        }

    @cached_property
    def source_characters(self) -> str | None:
        """The characters beyond ASCII in the training sources, by the module `data.characters`.

        None for a parser or a foreign tokenizer.
        """
        is_text = self.recipe.task.output == "text"
        return source_characters(self.pairs, self.tokenizer) if is_text else None

    def refuse_differences(self) -> None:
        """Raise TrainingError if the processes of the run have different setups."""
        self.processes.refuse_differences(
            recipe=self.recipe,
            precision=self.dtype,
            torch=torch.__version__,
            shard=self.shard,
            **self.fingerprints,
        )

    def model_and_optimizer(self, *, to_keep: bool = False) -> tuple[EncoderDecoder, Optimizer]:
        """A new model to train, and its optimizer, by `sharding.model_and_optimizer`.

        If `to_keep` is True, the model begins with the embedding that `training.first_embedding`
        names. If not, the embedding is random, because the caller soon replaces or discards all
        weights.
        """
        training, initialise = self.recipe.training, None
        if to_keep and training.first_embedding == "pairs":
            initialise = partial(begin_with_pairs, pairs=self.pairs, seed=training.seed)
        model, optimizer = model_and_optimizer(
            self.recipe, self.tokenizer.size, self.dtype, self.device, self.processes, self.shard,
            self.tokenizer.source_size, initialise,
        )  # fmt: skip
        know_words(model, self.tokenizer)
        return model, optimizer

    def cost(self, state: TrainingState) -> Cost:
        """The cost of the run so far; the first call measures the speed of the device."""
        return Cost(
            counted_flop=self.recipe.training.passes
            * flop_of_tokens(
                self.recipe.model,
                self.tokenizer.size,
                self.pairs.source_lengths,
                self.pairs.target_lengths,
                state.source_tokens,
                state.target_tokens,
            ),
            seconds=round(state.seconds, 3),
            devices=self.processes.count,
            single_precision_flop_per_second=single_precision_speed(self.device),
        )

    def share(self, parts: int) -> BatchShare:
        """This process's share of the parts of batches; each batch has at least `parts` parts."""
        rank, count = self.processes.rank, self.processes.count
        return BatchShare.even(rank, count, self.recipe.training.accumulate, parts)

    def batches(self, parts: int) -> Batches:
        """This process's share of the batches, from the beginning of the data; see `share`."""
        return batches_of(self.pairs, self.recipe, self.share(parts))

    def ahead(self, batches: Batches) -> Batches | Prefetched:
        """Return the batches; if training is on a GPU, a new process makes them in advance.

        On a CPU, `batches` itself is returned: making a batch takes much less time than a step.
        """
        if not computes_beside(self.device):
            return batches
        about = self.data, self.recipe, batches.share, self.pairs.fingerprint
        return Prefetched(batches, partial(training_batches, *about))


def _refuse_to_divide(recipe: TrainingRecipe) -> None:
    """Raise an error if the recipe's optimizer or arithmetic cannot train a divided model.

    The error is TrainingError for the optimizer, and RecipeError for the arithmetic.
    """
    if recipe.optimizer == "muon":
        raise TrainingError(
            "--shard divides matrices, and training.optimizer = muon needs whole ones: leave out "
            "--shard, or set training.optimizer = adam in a new run (--from takes the weights of "
            "a finished model)"
        )
    # The weights are gathered for one pass at a time, so two threads cannot learn at once.
    asked, threads = recipe.arithmetic, torch.get_num_threads()
    if asked == "halves" or (asked == "loops" and threads > 1):
        remedy = " or give --threads 1" if asked == "loops" else ""
        raise RecipeError(
            f"--shard: training.arithmetic = {asked} divides batches between {threads} threads, "
            f"and a divided model learns from whole ones: set it to auto{remedy}"
        )
