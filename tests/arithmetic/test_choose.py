"""Which arithmetic is chosen for a recipe, a device, a precision and a number of threads."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from arithmetic.cases import BF16, FP32, INT8, NUMBA, ONEDNN, inference, skip_without
from regard.arithmetic import choose, few_rows_limits
from regard.arithmetic.cpu import Cpu
from regard.arithmetic.cuda import (
    CUDNN,
    EFFICIENT,
    LARGE_BATCH,
    LARGE_CHUNK,
    TOKEN_BYTES,
    Cuda,
)
from regard.arithmetic.exact import BlockedLinear
from regard.arithmetic.flex import FlexCuda
from regard.arithmetic.inference import ExactInference, Inference
from regard.arithmetic.int8 import Int8Products
from regard.arithmetic.layouts import Int8Linear, Joined, LaidOut, PackedLinear, largest_weight
from regard.arithmetic.plain import PLAIN
from regard.arithmetic.products import OneDnnProducts, Products
from regard.equations import Arithmetic, FewRowsLimits
from regard.errors import RecipeError
from regard.recipe import Recipe, TrainingRecipe
from regard.transformer import Transformer

CPU, GPU, OTHER = (torch.device(name) for name in ("cpu", "cuda", "mps"))


def recipe(arithmetic: str = "auto", precision: str = "auto") -> TrainingRecipe:
    return Recipe().but(arithmetic=arithmetic, precision=precision).training


def kinds(parts: tuple[Arithmetic, ...]) -> list[str]:
    return [type(part).__name__ for part in parts]


@pytest.mark.parametrize(
    ("arithmetic", "threads", "parts", "large"),
    [
        ("auto", 1, ["OneCore"], choose.LARGE),
        ("auto", 2, ["OneCore", "OneCore"], choose.LARGE),
        ("auto", 3, None, math.inf),
        ("auto", 4, ["Cpu", "Cpu"], choose.LARGE),
        ("whole", 1, None, math.inf),
        ("whole", 2, None, math.inf),
        ("halves", 2, ["Cpu", "Cpu"], 0),
        ("halves", 4, ["Cpu", "Cpu"], 0),
        ("loops", 1, ["OneCore"], 0),
        ("loops", 2, ["OneCore", "OneCore"], 0),
    ],
)
def test_training_on_a_cpu(
    arithmetic: str, threads: int, parts: list[str] | None, large: float
) -> None:
    skip_without(NUMBA)
    chosen = choose.for_training(recipe(arithmetic), CPU, FP32, threads)
    assert type(chosen.whole) is Cpu
    assert chosen.large == large
    assert not chosen.compiled
    if parts is not None:
        made = chosen.parts()
        assert kinds(made) == parts
        generators = {part.generator for part in (chosen.whole, *made)}
        assert len(generators) == (1 if len(made) == 1 else 3)  # two have their own
        assert chosen.parts() is made


@pytest.mark.parametrize(("memory", "chunk"), [(24, Cuda.chunk), (40, LARGE_CHUNK)])
def test_training_on_other_devices(
    memory: int, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU with much memory computes the loss in large chunks."""
    monkeypatch.setattr(choose, "all_bytes", lambda device: memory * 10**9)
    gpu = choose.for_training(recipe(), GPU, BF16, 2)
    assert type(gpu.whole) is Cuda
    assert (gpu.whole.learning, gpu.whole.chunk) == (True, chunk)
    assert gpu.large == math.inf
    assert gpu.compiled is not None
    compiled = gpu.compiled()
    assert type(compiled) is FlexCuda
    assert (compiled.learning, compiled.chunk) == (True, chunk)
    for attention, kernels in (("efficient", EFFICIENT), ("cudnn", CUDNN)):
        other = choose.for_compiled_step(GPU, attention)
        assert type(other) is Cuda
        assert (other.learning, other.kernels, other.chunk) == (True, kernels, chunk)
    plain = choose.ForTraining(PLAIN, tuple, math.inf)
    assert choose.for_training(recipe(), OTHER, FP32, 2) == plain
    for device in CPU, GPU, OTHER:
        assert choose.for_training(recipe("plain"), device, FP32, 2) == plain


@pytest.mark.parametrize(
    ("precision", "dtype", "packs", "products"),
    [
        ("fp32", FP32, True, Products),
        ("bf16", BF16, True, OneDnnProducts),
        ("bf16", BF16, False, Products),
        ("int8", BF16, True, Int8Products),
        ("int8", FP32, False, Int8Products),
    ],
)
@pytest.mark.parametrize("arithmetic", ["auto", "whole", "halves"])
def test_products_of_training_on_a_cpu(
    arithmetic: str,
    precision: str,
    dtype: torch.dtype,
    packs: bool,
    products: type,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "has_int8_training", lambda: True)
    monkeypatch.setattr(choose, "can_pack", lambda dtype: packs)
    chosen = choose.for_training(recipe(arithmetic, precision), CPU, dtype, 4)
    assert {type(by.products) for by in (chosen.whole, *chosen.parts())} == {products}


def test_without_numba_auto_computes_by_pytorch_and_loops_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "can_use_loops", lambda: False)
    assert kinds(choose.for_training(recipe(), CPU, FP32, 2).parts()) == ["Cpu", "Cpu"]
    assert type(choose.for_update(recipe(), CPU, BF16, choose.MANY_WEIGHTS)) is Cpu
    by = Inference(Products())
    assert choose.with_loops(by) is by
    with pytest.raises(RecipeError, match="loops needs Numba: pip install numba"):
        choose.for_training(recipe("loops"), CPU, FP32, 2)


def test_a_numba_that_cannot_be_imported_is_noticed() -> None:
    """It refuses a NumPy that is newer than it knows, for one."""
    code = (
        "import sys; sys.modules['numba'] = None; from regard.arithmetic.choose import *;"
        "load_loops(torch.device('cpu')); print(can_use_loops())"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("arithmetic", "precision", "device", "threads", "message"),
    [
        ("plain", "int8", CPU, 2, "plain has no int8: set training.precision otherwise"),
        ("whole", "auto", GPU, 2, "whole is for a CPU: use auto or plain"),
        ("halves", "auto", OTHER, 2, "halves is for a CPU: use auto or plain"),
        ("loops", "auto", GPU, 2, "loops is for a CPU: use auto or plain"),
        ("halves", "auto", CPU, 3, "in two, and there are 3: give an even number of --threads"),
        ("loops", "auto", CPU, 3, "loops takes one core or two: give --threads 2"),
        ("auto", "int8", GPU, 2, "int8 is for an x86 CPU with VNNI: use bf16, fp32 or auto"),
    ],
)
def test_refusals(
    arithmetic: str,
    precision: str,
    device: torch.device,
    threads: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "has_int8_training", lambda: True)
    with pytest.raises(RecipeError, match=message):
        choose.for_training(recipe(arithmetic, precision), device, FP32, threads)


@pytest.mark.parametrize(
    ("arithmetic", "device", "dtype", "weights", "kind"),
    [
        ("auto", CPU, BF16, choose.MANY_WEIGHTS, "OneCore"),
        ("auto", CPU, BF16, choose.MANY_WEIGHTS - 1, "Cpu"),
        ("auto", CPU, FP32, choose.MANY_WEIGHTS, "Cpu"),
        ("loops", CPU, BF16, 1, "OneCore"),
        ("loops", CPU, FP32, 1, "Cpu"),
        ("whole", CPU, BF16, choose.MANY_WEIGHTS, "Cpu"),
        ("halves", CPU, BF16, choose.MANY_WEIGHTS, "Cpu"),
        ("plain", CPU, BF16, choose.MANY_WEIGHTS, "Plain"),
        ("auto", GPU, BF16, choose.MANY_WEIGHTS, "Cuda"),
        ("auto", OTHER, BF16, choose.MANY_WEIGHTS, "Plain"),
    ],
)
def test_updates(
    arithmetic: str, device: torch.device, dtype: torch.dtype, weights: int, kind: str
) -> None:
    skip_without(NUMBA)
    by = choose.for_update(recipe(arithmetic), device, dtype, weights)
    assert type(by).__name__ == kind


def test_validation_and_inference() -> None:
    for by in (
        choose.for_validation(recipe("halves"), CPU, FP32),
        choose.for_inference(CPU, FP32),
    ):
        assert type(by) is Inference
        assert type(by.products) is Products
        assert by.keep_in is None
    gpu = choose.for_validation(recipe(), GPU, BF16)
    assert type(gpu) is Cuda
    assert not gpu.learning
    assert choose.for_inference(OTHER, FP32) is PLAIN
    assert choose.for_validation(recipe("plain"), GPU, FP32) is PLAIN


def small_model(dtype: torch.dtype = FP32) -> Transformer:
    sizes = {"layers": 1, "d_model": 16, "d_ff": 23, "heads": 2}
    return Transformer(Recipe().but(**sizes).model, vocabulary=29).to(dtype).eval()


@pytest.mark.parametrize(
    ("precision", "exact", "kind", "layout", "keep_in"),
    [
        ("fp32", False, Inference, PackedLinear, FP32),
        ("fp32", None, Inference, BlockedLinear, FP32),
        ("fp32", True, ExactInference, BlockedLinear, FP32),
        ("int8", False, Inference, Int8Linear, BF16),
        ("int8", True, ExactInference, Int8Linear, FP32),
    ],
)
def test_decoding_on_a_cpu(
    precision: str,
    exact: bool | None,
    kind: type,
    layout: type,
    keep_in: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without(ONEDNN, *([INT8] if precision == "int8" else []))
    monkeypatch.setattr(choose, "has_bf16", lambda device: True)
    model = small_model()
    by = choose.for_decoding(model, CPU, precision, exact)
    assert type(by) is kind
    assert by.keep_in == keep_in
    assert type(by.products) is LaidOut
    assert {type(laid_out) for laid_out in by.products.layouts.values()} == {layout}
    left = {name for name, _ in model.named_parameters() if "norm" not in name}
    assert left == {"embedding.tokens.weight"}  # the others have been laid out


def test_decoding_in_int8_keeps_fp32_where_bf16_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(INT8)
    monkeypatch.setattr(choose, "has_bf16", lambda device: False)
    assert choose.for_decoding(small_model(), CPU, "int8", False).keep_in == FP32


@pytest.mark.parametrize(
    ("precision", "avx2", "vnni", "limits"),
    [
        ("int8", True, True, few_rows_limits.FEW_ROWS_BY_VNNI),
        ("int8", True, False, few_rows_limits.FEW_ROWS_BY_AVX2),
        ("int8", False, False, few_rows_limits.FEW_ROWS),
        ("fp32", True, True, few_rows_limits.FEW_ROWS_IN_FP32),
    ],
)
def test_the_limits_of_few_rows_suit_the_processor(
    precision: str,
    avx2: bool,
    vnni: bool,
    limits: FewRowsLimits,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without(ONEDNN, *([INT8] if precision == "int8" else []))
    monkeypatch.setattr(few_rows_limits, "has_avx2", lambda: avx2)
    monkeypatch.setattr(few_rows_limits, "has_vnni", lambda: vnni)
    assert choose.for_decoding(small_model(), CPU, precision, False).few_rows_limits == limits
    exact = choose.for_decoding(small_model(), CPU, precision, True)
    assert exact.few_rows_limits == (limits if precision == "fp32" else None)


def test_loops_that_cannot_be_kept_do_not_decode_in_fp32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without(ONEDNN)
    (tmp_path / "file").touch()
    for folder, limits in (
        ("new/folder", few_rows_limits.FEW_ROWS_IN_FP32),
        ("file/folder", None),
    ):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / folder))
        assert choose.for_decoding(small_model(), CPU, "fp32", None).few_rows_limits == limits


@pytest.mark.parametrize(
    ("memory", "tokens"),
    [(8, 6_521), (24, 19_565), (40, 32_608), (85, LARGE_BATCH), (150, LARGE_BATCH)],
)
def test_decoding_on_a_gpu(memory: int, tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights stay; two batches at the same time take at most three quarters of the memory."""
    monkeypatch.setattr(choose, "all_bytes", lambda device: memory * 10**9)
    model = small_model(BF16)
    by = choose.for_decoding(model, GPU, "bf16", None)
    assert type(by) is Cuda
    assert not by.learning
    assert type(by.products) is Joined
    assert by.batch_tokens == tokens
    assert by.streams is not None
    assert by.streams.count * tokens * TOKEN_BYTES <= 0.75 * memory * 10**9
    assert model.decoder[0].self_attention.W_q.weight.dtype == BF16


def test_decoding_with_the_weights_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(BF16)
    monkeypatch.setattr(choose, "can_pack", lambda dtype: False)
    by = choose.for_decoding(model, CPU, "bf16", None)
    assert type(by) is Inference
    assert type(by.products) is Products
    assert all(weight.dtype == BF16 for weight in model.parameters())


def test_loops_take_the_place_of_inference_and_of_nothing_else() -> None:
    skip_without(NUMBA)
    by = Inference(Products(), BF16)
    loops = choose.with_loops(by)
    assert type(loops) is type(inference(Products(), loops=True))
    assert (loops.products, loops.keep_in) == (by.products, BF16)
    for other in (PLAIN, Cuda(learning=False), Cpu(Products()), loops):
        assert choose.with_loops(other) is other


@pytest.mark.parametrize("native", [True, False])
def test_auto_is_bf16_where_it_is_native(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "has_bf16", lambda device: native)
    monkeypatch.setattr(choose, "has_int8_training", lambda: True)
    assert choose.choose_dtype("auto", CPU) == (BF16 if native else FP32)
    assert choose.choose_dtype("int8", CPU) == (BF16 if native else FP32)  # what is not rounded
    assert choose.choose_dtype("bf16", CPU) == BF16
    assert choose.choose_dtype("fp32", CPU) == FP32


def test_training_in_int8_is_refused_where_products_are_not_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choose, "has_int8_training", lambda: True)
    choose.refuse_int8_training(CPU)
    for refused in choose.refuse_int8_training, lambda device: choose.choose_dtype("int8", device):
        with pytest.raises(RecipeError, match=r"training\.precision=int8 is for an x86 CPU"):
            refused(GPU)
    monkeypatch.setattr(choose, "has_int8_training", lambda: False)
    with pytest.raises(RecipeError, match="with VNNI: use bf16, fp32 or auto"):
        choose.choose_dtype("int8", CPU)


def test_inference_in_int8_is_refused_where_products_are_not_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_without(INT8)
    choose.refuse_int8(CPU)
    with pytest.raises(RecipeError, match="int8 is for an x86 CPU with AVX2: use bf16 or fp32"):
        choose.refuse_int8(GPU)
    monkeypatch.setattr(Int8Linear, "product", lambda *_: torch.full((16, 16), 63.0))
    monkeypatch.setattr(choose, "largest_weight", largest_weight.__wrapped__)  # not remembered
    with pytest.raises(RecipeError, match="int8 is for an x86 CPU with AVX2: use bf16 or fp32"):
        choose.refuse_int8(CPU)
