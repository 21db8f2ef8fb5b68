"""Functions that choose an implementation of the equations for a model or a training run.

In this module, "an arithmetic" means an implementation: an object of the class `Arithmetic`. The
recipe's `training.arithmetic` selects the arithmetic that computes the losses and gradients:

    auto      on a CPU, small batches use "whole". Large batches (see `LARGE`) use "loops" with one
              or two cores, "halves" with a larger even number of cores, and "whole" with a larger
              odd number. On a GPU, `Cuda` computes; if all batches have one shape, the training
              step is compiled
    plain     `Plain`: the definitions, on any device
    whole     `Cpu`: PyTorch's operations, on all cores
    halves    two `Cpu` at the same time, each with half of the rows and half of the cores
    loops     one `OneCore` on each of one or two cores ("auto" uses `Cpu` if Numba is missing)

On a CPU, all arithmetics except "plain" compute the products of linear layers, and the logits, by
`Int8Products` in int8, and by `OneDnnProducts` in bf16 if oneDNN has bf16. Attention does not use
these classes. With --shard, batches are not divided into halves, and no step is compiled.

Validation uses `Plain` if training does, otherwise `Inference` on a CPU and `Cuda` on a GPU.
For decoding on a CPU, oneDNN packs the weights: it rearranges them for its matrix kernels. In int8,
the weights are rounded first. In other precisions, a layer may multiply its input rows in blocks,
so that a sentence gets the same bits in any batch. The compiled loops of `FewRows` decode in fp32
and, if there are few rows and results need not be exact, in bf16 and int8 (`few_rows_limits`).
"""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from regard.arithmetic.cpu import Cpu
from regard.arithmetic.cuda import CUDNN, EFFICIENT, STREAMS, Cuda
from regard.arithmetic.exact import BlockedLinear
from regard.arithmetic.few_rows_limits import few_rows_limits, suits_few_rows
from regard.arithmetic.inference import ExactInference, Inference
from regard.arithmetic.int8 import Int8Products, has_int8_training
from regard.arithmetic.layouts import Int8Linear, Joined, LaidOut, PackedLinear, largest_weight
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import OneDnnProducts, Products
from regard.attention import MultiHeadAttention
from regard.equations import Arithmetic
from regard.errors import RecipeError
from regard.machine.devices import has_avx2, has_bf16
from regard.machine.memory import all_bytes
from regard.machine.streams import Streams
from regard.neighbourhood import RestrictedAttention
from regard.recipe import TrainingRecipe
from regard.variants import AdditiveAttention, SmoothFeedForward

COMPILED_ATTENTION: Literal["flex", "efficient", "cudnn"] = "flex"
"""The attention kernel of compiled training steps on a GPU; `benchmarks/gpu.py` times all three."""
LARGE = 4 * 10**9
"""A batch is large if its number of positions (source, target and padding) times the model's number
of weights is at least `LARGE`: two cores compute such a batch in about 0.1 s or more. In smaller
batches, two halves would often wait for each other, because only one thread can run Python at a
time."""
MANY_WEIGHTS = 2**22
"""On a CPU in bf16, if `training.arithmetic` is "auto", a compiled loop computes Adam's updates of
models with at least this many weights. For such models, the loop is faster than PyTorch's Adam."""


def choose_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The dtype of a precision: "auto" and "int8" are bf16 if the device has fast bf16, else fp32.

    Raises RecipeError if `precision` is "int8" and the device cannot train in it.
    """
    if precision == "int8":
        refuse_int8_training(device)
    if precision == "fp32":
        return torch.float32
    if precision == "bf16" or has_bf16(device):
        return torch.bfloat16
    return torch.float32


class ForTraining(NamedTuple):
    """The arithmetics (implementations of the equations) that a run trains with."""

    whole: Arithmetic
    """The arithmetic that computes a whole batch at once; on a CPU, by all threads of PyTorch."""
    parts: Callable[[], tuple[Cpu, ...]]
    """Returns one arithmetic for each part of a large batch; each call returns the same objects.
    Several parts are computed at the same time, each with its own generator of dropout masks."""
    large: float
    """A batch is large if its number of positions (source, target and padding) times the model's
    number of weights is at least this number. With inf, no batch is large."""
    compiled: Callable[[], Arithmetic] | None = None
    """Returns the arithmetic of compiled training steps; called only if all batches have one shape.
    If `compiled` is None, no step is compiled."""


def for_training(
    recipe: TrainingRecipe, device: torch.device, dtype: torch.dtype, threads: int
) -> ForTraining:
    """The implementations of the equations for training; on a CPU, they use `threads` cores.

    Raises RecipeError if this machine cannot compute by the recipe's arithmetic and precision.
    """
    refuse_arithmetic(recipe, device, threads)
    asked = recipe.arithmetic
    if asked == "plain" or device.type not in ("cpu", "cuda"):
        return ForTraining(PLAIN, tuple, math.inf)
    if device.type == "cuda":
        whole = Cuda(learning=True).with_memory(all_bytes(device))
        return ForTraining(whole, tuple, math.inf, partial(for_compiled_step, device))
    products = Int8Products() if recipe.precision == "int8" else _products(dtype)
    divided = 2 if threads % 2 == 0 else 1
    by_loops = asked in ("auto", "loops") and threads == divided

    @cache
    def parts() -> tuple[Cpu, ...]:
        kind = _one_core().OneCore if by_loops and can_use_loops() else Cpu
        if divided == 1:
            return (kind(products),)
        return tuple(kind(products, torch.Generator()) for _ in range(divided))

    pays = asked != "whole" and (divided == 2 or by_loops)
    large = math.inf if not pays else LARGE if asked == "auto" else 0
    return ForTraining(Cpu(products), parts, large)


def for_compiled_step(device: torch.device, attention: str = COMPILED_ATTENTION) -> Arithmetic:
    """The arithmetic of the compiled training step on a GPU.

    `attention` names the kernel that computes equation (1): "flex", "cudnn" or "efficient".
    """
    memory = all_bytes(device)
    if attention == "flex":
        from regard.arithmetic.flex import FlexCuda  # slow to import

        return FlexCuda(learning=True).with_memory(memory)
    kernels = CUDNN if attention == "cudnn" else EFFICIENT
    return Cuda(learning=True, kernels=kernels).with_memory(memory)


def for_update(
    recipe: TrainingRecipe, device: torch.device, dtype: torch.dtype, weights: int
) -> Arithmetic:
    """The arithmetic that computes Adam's updates of a model with `weights` weights."""
    if recipe.arithmetic == "plain" or device.type not in ("cpu", "cuda"):
        return PLAIN
    if device.type == "cuda":
        return Cuda(learning=True)
    pays = recipe.arithmetic == "auto" and weights >= MANY_WEIGHTS
    by_loop = dtype == torch.bfloat16 and (pays or recipe.arithmetic == "loops")
    return _one_core().OneCore(Products()) if by_loop and can_use_loops() else Cpu(Products())


def for_validation(recipe: TrainingRecipe, device: torch.device, dtype: torch.dtype) -> Arithmetic:
    """The arithmetic that validates a model during training."""
    return PLAIN if recipe.arithmetic == "plain" else for_inference(device, dtype)


def for_inference(device: torch.device, dtype: torch.dtype) -> Arithmetic:
    """The arithmetic for computing without gradients; it leaves the model's weights unchanged."""
    if device.type == "cuda":
        return Cuda(learning=False)
    return Inference(_products(dtype)) if device.type == "cpu" else PLAIN


def for_decoding(
    model: Any, device: torch.device, precision: str, exact: bool | None
) -> Arithmetic:
    """The arithmetic of decoding.

    On a CPU, the weights of `model` are moved into a packed layout, if oneDNN can pack them. On a
    GPU, layers with the same input get one weight tensor; the GPU's memory limits batch sizes.

    `precision` is "int8" or the precision of the model's weights. If `exact` is False, the bits of
    a sentence's results may depend on the other sentences in its batch. If `exact` is True, the
    result is an `ExactInference`. But if `ExactInference` cannot compute `model` on this device,
    the result is another arithmetic, whose `batches_agree` returns False. If `exact` is None,
    linear layers are computed as if `exact` were True, but the result is not an `ExactInference`.
    """
    if device.type == "cuda":
        streams = Streams(device, STREAMS)
        by = Cuda(learning=False, products=Joined(model), streams=streams)
        return by.with_memory(all_bytes(device))
    dtype = model.output_matrix.weight.dtype
    if device.type != "cpu" or not can_pack(dtype):
        return for_inference(device, dtype)
    packed = PackedLinear if exact is False else BlockedLinear
    lay_out = Int8Linear if precision == "int8" else packed
    products = LaidOut(model, model.output_matrix, lay_out, model.output_bias)
    if exact and (sizes := _sizes_to_test(model)):
        inference: Inference = ExactInference(products, sizes)
    else:
        int8_beside_bf16 = precision == "int8" and has_bf16(device)
        inference = Inference(products, torch.bfloat16 if int8_beside_bf16 else dtype)
    inference.few_rows_limits = few_rows_limits(precision, dtype, exact)
    return inference


def _sizes_to_test(model: nn.Module) -> set[tuple[int, int, int]]:
    """The sizes (heads, d_k, d_v) of all `MultiHeadAttention` modules; `ExactInference` tests them.

    The set is empty if there are no such modules. It is also empty if the model has a module of a
    class in `inexact`, because the last bits of that module's results may depend on the other rows
    of the batch.
    """
    modules = list(model.modules())
    inexact = (AdditiveAttention, SmoothFeedForward, RestrictedAttention)
    if any(isinstance(module, inexact) for module in modules):
        return set()
    attentions = (module for module in modules if isinstance(module, MultiHeadAttention))
    return {(its.heads, its.d_k, its.d_v) for its in attentions}


def with_loops(arithmetic: Arithmetic) -> Arithmetic:
    """Replace an `Inference` by an arithmetic with compiled loops, for threads with one core each.

    Returns `arithmetic` unchanged if it is of another class, or if the loops cannot be used.
    """
    if type(arithmetic) is Inference and can_use_loops():
        by_loops: Arithmetic = _one_core().OneCoreInference(arithmetic.products, arithmetic.keep_in)
        return by_loops
    return arithmetic


def for_few_rows(model: Any) -> Any:
    """A `FewRows` that computes `start` and `step` of this model by compiled loops, or None.

    The result is None if `model.by.few_rows_limits` is None, if loops are not available, or if they
    cannot compute the model. Loading the loops takes 0.3 to 1 s; the first time on a machine,
    compiling them takes 15 to 45 s.
    """
    if model.by.few_rows_limits is None or not suits_few_rows(model) or not can_use_loops():
        return None
    from regard.arithmetic.few_rows import FewRows  # the import loads the loops

    return FewRows(model)


@cache
def can_use_loops() -> bool:
    """Whether the loops are available: False if Numba is missing, cannot be imported, or is off.

    The first call loads them (0.25 s) or, once per machine, compiles them (10 to 20 s).
    """
    try:
        import numba

        config: Any = numba.config
        if config.DISABLE_JIT:  # NUMBA_DISABLE_JIT: Python would run the loops
            return False
        _one_core()
    except (ImportError, OSError):
        return False
    return True


def load_loops(device: torch.device) -> None:
    """Load the compiled loops now, if training on this device may use them later."""
    if device.type == "cpu":
        can_use_loops()


def _one_core() -> Any:
    from regard.arithmetic import one_core

    return one_core


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN is in this build of PyTorch and computes in this precision."""
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()


def _products(dtype: torch.dtype) -> Products:
    return OneDnnProducts() if dtype == torch.bfloat16 and can_pack(dtype) else Products()


def usual_precision(device: torch.device) -> str:
    """The precision that "auto" means in decoding: bf16 if the device has fast bf16, else fp32."""
    return "bf16" if has_bf16(device) else "fp32"


def fastest_precision(device: torch.device) -> str:
    """The fastest precision of decoding: int8 on an x86 CPU with AVX2, else `usual_precision`."""
    x86 = device.type == "cpu" and has_avx2() and can_pack(torch.float32)
    return "int8" if x86 and largest_weight() else usual_precision(device)


def refuse_int8(device: torch.device) -> None:
    """Raise RecipeError if this device has no exact 8-bit products for inference."""
    if device.type != "cpu" or not can_pack(torch.float32) or not largest_weight():
        raise RecipeError("precision int8 is for an x86 CPU with AVX2: use bf16 or fp32")


def refuse_int8_training(device: torch.device) -> None:
    """Raise RecipeError unless the device is a CPU for which `has_int8_training` is True."""
    if device.type != "cpu" or not has_int8_training():
        raise RecipeError(
            "training.precision=int8 is for an x86 CPU with VNNI: use bf16, fp32 or auto"
        )


def refuse_arithmetic(recipe: TrainingRecipe, device: torch.device, threads: int) -> None:
    """Raise RecipeError if this machine cannot compute by the recipe's arithmetic and precision."""
    asked = recipe.arithmetic
    if recipe.precision == "int8":
        refuse_int8_training(device)
    if asked == "plain" and recipe.precision == "int8":
        raise RecipeError("training.arithmetic=plain has no int8: set training.precision otherwise")
    if asked in ("whole", "halves", "loops") and device.type != "cpu":
        raise RecipeError(f"training.arithmetic={asked} is for a CPU: use auto or plain")
    if asked == "halves" and threads % 2:
        raise RecipeError(
            f"training.arithmetic=halves divides the cores in two, and there are {threads}: give "
            "an even number of --threads"
        )
    if asked == "loops" and threads > 2:
        raise RecipeError("training.arithmetic=loops takes one core or two: give --threads 2")
    if asked == "loops" and not can_use_loops():
        raise RecipeError("training.arithmetic=loops needs Numba: pip install numba, or use auto")
