"""Divide a model that is too large for one device among processes, by PyTorch's `fully_shard`.

Each process keeps a shard of every parameter: some rows of the parameter, in fp32, with their
gradients and moments. When a layer computes, its weights are gathered in the precision of training,
and are dropped afterwards. The layer's gradient is summed over all processes, and each process
keeps its shard of the sum. The updates equal those of processes that each have the whole model,
except for the rounding of sums. The method is known as FSDP, fully sharded data parallelism.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from regard.arithmetic.choose import for_update
from regard.data.batches import Batch
from regard.encoder_decoder import EncoderDecoder
from regard.errors import TrainingError
from regard.families.choose import new_model
from regard.machine.devices import keep_freed_memory
from regard.machine.processes import Processes
from regard.muon import FlatMuon
from regard.optimizer import FlatAdam
from regard.recipe import Recipe
from regard.word_positions import know_words_of

BatchLoss = Callable[[EncoderDecoder, Batch, float], tuple[Tensor, Tensor]]
"""A function of a model, a batch and the label smoothing. It returns the loss with and without
smoothing, each summed over tokens."""
MOMENTS = ("exp_avg", "exp_avg_sq")
"""Names of Adam's moments in torch and in checkpoints; the article that §5.3 cites for Adam calls
them m and v."""


class ShardedAdam:
    """Adam for this process's shards of the model's parameters, with the interface of FlatAdam.

    `model` is undivided at first, on the CPU; `give` divides it and moves the shards to `device`.
    After that, the model computes only inside `compute`. All processes must call the same methods
    in the same order, except `restore`.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        recipe: Recipe,
        dtype: torch.dtype,
        device: torch.device,
        processes: Processes,
    ):
        self._model, self._recipe, self._dtype = model, recipe, dtype
        self._device, self._processes = device, processes
        self._vocabularies = model.vocabulary, model.source_vocabulary
        self._places: dict[str, slice] = {}
        self._count = 0
        for name, parameter in model.named_parameters():
            self._places[name] = slice(self._count, self._count + parameter.numel())
            self._count += parameter.numel()
        self._restored: dict[str, Tensor] = {}
        self.exchange = Exchange(processes, same_shapes=recipe.data.layout == "packed")

    def restore(self, weights: dict[str, Tensor], state: dict[str, Tensor]) -> None:
        """Set the weights and Adam's state of the first process, before `give` divides them.

        `state` has the form of FlatAdam's state. Raises KeyError or RuntimeError if the weights or
        the moments do not fit the model.
        """
        for name, parameter in self._model.named_parameters():
            parameter.data.copy_(weights[name])
        self._restored = {"step": state["step"]}
        for name in MOMENTS:
            if state[name].shape != (self._count,):
                raise RuntimeError(f"{len(state[name]):,} moments of {self._count:,} parameters")
            self._restored[name] = state[name]

    def give(self, to_processes: Callable[[Tensor], None]) -> None:
        """Divide the weights and moments of the first process among all processes.

        `to_processes` is `Processes.give`: it fills a tensor of each process with the values of the
        first process. Raises TrainingError if PyTorch is too old to divide a model.
        """
        for parameter in self._model.parameters():
            to_processes(parameter.data)
        self._root = _divided(self._model, self._dtype, self._device, self.exchange)
        self._shards = _Shards(self._model, self._processes)
        training = self._recipe.training
        self._adam = torch.optim.Adam(
            list(self._shards.mine.values()),
            betas=(training.beta1, training.beta2),
            eps=training.epsilon,
            fused=training.arithmetic != "plain",
        )
        step = self._restored.get("step", torch.zeros(()))
        to_processes(step)
        for name, mine in self._shards.mine.items():
            state = {"step": step.clone().to(self._device)}
            for moment in MOMENTS:
                whole = torch.zeros(self._shards.parameters[name].shape)
                if self._restored:
                    whole.copy_(self._restored[moment][self._places[name]].view(whole.shape))
                to_processes(whole)
                state[moment] = self._shards.cut(name, whole).to(self._device, copy=True)
            self._adam.state[mine] = state
        self._restored = {}

    def compute(self, loss: BatchLoss, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """Return what `loss` returns for a batch; each layer's weights are gathered when needed."""
        result: tuple[Tensor, Tensor] = self._root(loss, batch, smoothing)
        return result

    def make_way(self) -> None:
        """Do nothing: FSDP itself adds the gradient of each backward pass to a sum in fp32."""

    def add_up(self, over_processes: Callable[[Tensor], None]) -> None:
        """Do nothing: FSDP has summed the gradients over the processes in the backward pass."""

    def forget(self) -> None:
        """Drop the gradient, including the gradient of an interrupted backward pass."""
        self._root.reset_iter_state()
        self._shards.drop_gradients()
        self.exchange.fitted = 0

    def step(self, rate: float, tokens: int | Tensor) -> None:
        """Update the weights; the summed gradient is divided by the number of target `tokens`."""
        for name, mine in self._shards.mine.items():
            gradient = self._shards.parameters[name].grad
            if gradient is not None:  # some parameters are not trained
                mine.grad = gradient.to_local().div_(tokens)
        self._adam.param_groups[0]["lr"] = rate
        self._adam.step()
        self._shards.drop_gradients()
        self.exchange.fitted += 1

    def is_finite(self) -> bool:
        """Whether every weight in this process is finite; False also if a sum of them overflows."""
        sums = [mine.sum() for mine in self._shards.mine.values()]
        return bool(torch.stack(sums).isfinite().all())

    def named_weights(self) -> dict[str, Tensor]:
        """The fp32 weights by parameter name, on the CPU; empty except in the first process."""
        shards = self._shards
        whole = {name: shards.first_joins(name, mine) for name, mine in shards.mine.items()}
        return {name: tensor for name, tensor in whole.items() if tensor is not None}

    def state(self) -> dict[str, Tensor]:
        """Adam's step count and moments in FlatAdam's form; empty except in the first process."""
        states = {name: self._adam.state[mine] for name, mine in self._shards.mine.items()}
        found = {}
        for moment in MOMENTS:
            flat = torch.empty(self._count if self._processes.first else 0)
            for name, state in states.items():
                whole = self._shards.first_joins(name, state[moment])
                if whole is not None:
                    flat[self._places[name]] = whole.flatten()
            found[moment] = flat
        learned = next(n for n, p in self._shards.parameters.items() if p.requires_grad)
        return {"step": states[learned]["step"].cpu(), **found} if self._processes.first else {}

    def whole_model(self) -> EncoderDecoder:
        """A copy of the undivided model, on this process's device, in the precision of training."""
        with torch.device("meta"):
            model = new_model(self._recipe.model, *self._vocabularies)
        shards = self._shards
        weights = {n: shards.join(n, mine).to(self._dtype) for n, mine in shards.mine.items()}
        model.load_state_dict(weights, assign=True)
        know_words_of(self._model, model)
        return model.to(self._device)


class _Shards:
    """The shards of a divided model's parameters, by rows: the first process has the first rows."""

    def __init__(self, model: EncoderDecoder, processes: Processes):
        self._processes = processes
        self.parameters: dict[str, Any] = dict(model.named_parameters())
        with torch.no_grad():
            self.mine = {name: p.to_local() for name, p in self.parameters.items()}

    def cut(self, name: str, whole: Tensor) -> Tensor:
        """This process's shard of a tensor that has the shape of the named parameter."""
        rows = self._rows(name)
        return whole[rows * self._processes.rank :][:rows]

    def join(self, name: str, mine: Tensor) -> Tensor:
        """Join the processes' shards, as `cut` makes them; all processes get the whole tensor."""
        shape, rows = self.parameters[name].shape, self._rows(name)
        padded = mine.new_zeros(rows, *shape[1:])
        padded[: len(mine)] = mine
        whole = mine.new_empty(rows * self._processes.count, *shape[1:])
        self._processes.gather(whole, padded)
        return whole[: shape[0]]

    def first_joins(self, name: str, mine: Tensor) -> Tensor | None:
        """Join the shards in the first process, on the CPU; the other processes get None.

        All processes must call this together.
        """
        whole = self.join(name, mine)
        return whole.cpu() if self._processes.first else None

    def drop_gradients(self) -> None:
        """Forget the gradients of all shards."""
        for name, mine in self.mine.items():
            self.parameters[name].grad = mine.grad = None

    def _rows(self, name: str) -> int:
        """How many rows a shard of this parameter has; the last shards may have fewer, or none."""
        return -(-len(self.parameters[name]) // self._processes.count)


Optimizer = FlatAdam | ShardedAdam


def model_and_optimizer(
    recipe: Recipe,
    vocabulary: int,
    dtype: torch.dtype,
    device: torch.device,
    processes: Processes,
    shard: bool,
    source_vocabulary: int | None = None,
    initialise: Callable[[EncoderDecoder], None] | None = None,
) -> tuple[EncoderDecoder, Optimizer]:
    """A model to train, initialised from the recipe's seed, and an optimizer for its weights.

    `vocabulary` is the size of the target's vocabulary, and `source_vocabulary` the size of the
    source's, if it differs. `initialise`, if given, is called with the model, and may change its
    random weights. With `shard` and several processes, the model is first whole and on the CPU. The
    optimizer's `give` divides it; before that, only `restore` may be called. Otherwise, model and
    moments are on `device`, and `give` makes them equal in all processes.
    """
    keep_freed_memory()
    torch.manual_seed(recipe.training.seed)
    model = new_model(recipe.model, vocabulary, source_vocabulary).float().train()
    if initialise is not None:
        initialise(model)
    if shard and processes.count > 1:
        return model, ShardedAdam(model, recipe, dtype, device, processes)
    by = for_update(recipe.training, device, dtype, model.parameter_count)
    flat = FlatMuon if recipe.training.optimizer == "muon" else FlatAdam
    return model, flat(model.to(device), recipe.training, dtype, by)


class _Root(nn.Module):
    """Calls functions of the model in its `forward`: FSDP gathers no weights for other methods."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[..., Any], *arguments: Any) -> Any:
        return compute(self.model, *arguments)


def _divided(
    model: EncoderDecoder, dtype: torch.dtype, device: torch.device, exchange: "Exchange"
) -> Any:
    """Divide each layer of the model, then its other parameters; return the model's `_Root`.

    Raises TrainingError if PyTorch is too old.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    if not (hasattr(FSDPModule, "reset_iter_state") and hasattr(dist, "all_gather_single")):
        raise TrainingError(
            f"--shard: PyTorch {torch.__version__} cannot undo a step that ran out of memory: "
            "install 2.13 or later"
        )
    mesh = init_device_mesh(device.type, (exchange.processes.count,))
    mixed = dtype != torch.float32
    policy = MixedPrecisionPolicy(
        param_dtype=dtype if mixed else None,
        reduce_dtype=torch.float32 if mixed else None,
        cast_forward_inputs=False,
    )
    root: Any = _Root(model)
    for module in (*model.encoder, *model.decoder, root):
        divided: Any = fully_shard(module, mesh=mesh, mp_policy=policy)
        divided.set_gradient_divide_factor(1.0)  # FSDP sums gradients; `step` divides by the tokens
        divided.set_custom_all_gather(_Gather(exchange))
        divided.set_custom_reduce_scatter(_AddUp(exchange))
    return root


class Exchange:
    """Checks that all processes have enough memory, each time before they exchange tensors.

    Without the check, the processes would wait for ever for a process that is out of memory. If all
    batches have the same shape, and two updates have fitted the memory, the next updates fit it,
    too. From then on, the check is left out, and a lack of memory ends all processes.
    """

    def __init__(self, processes: Processes, *, same_shapes: bool):
        self.processes, self._same_shapes = processes, same_shapes
        self.fitted = 0
        """The number of updates since memory last ran out."""

    def agree(self) -> None:
        """Raise OutOfMemory in all processes if one is out of memory; if `settled`, do nothing."""
        if not self.settled:
            self.processes.agree_on_memory()

    @property
    def settled(self) -> bool:
        """Whether the check is left out, because further updates should fit the memory."""
        return self._same_shapes and self.fitted >= 2


class _Part:
    """The base of the objects that `fully_shard` calls to allocate and to exchange tensors."""

    def __init__(self, exchange: Exchange):
        self._exchange = exchange

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Part):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> None:
        self._exchange.agree()
        self._exchange.processes.gather(output_tensor, input_tensor)


class _AddUp(_Part):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> None:
        self._exchange.agree()
        self._exchange.processes.add_up_shards(output_tensor, input_tensor)
