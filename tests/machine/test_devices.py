"""The device and the number of threads that a run uses."""

import os
import platform
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from regard.errors import RecipeError, TrainingError
from regard.machine import devices
from run.killing import in_fork

CPU = torch.device("cpu")


@pytest.fixture
def threads() -> Iterator[int]:
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def test_the_device_is_a_gpu_where_there_is_one() -> None:
    assert (devices.choose_device().type == "cuda") == torch.cuda.is_available()


@pytest.mark.parametrize(
    ("capability", "known", "needed"),
    [
        ((6, 1), ["sm_75", "sm_80", "sm_120a"], "7.5"),
        ((7, 5), ["sm_75", "sm_80"], None),
        ((12, 0), ["sm_75", "sm_80"], None),  # newer ones compile the kernels for themselves
        ((6, 1), ["gfx90a"], None),
    ],
)
def test_a_gpu_that_is_too_old_for_this_pytorch_is_refused(
    capability: tuple[int, int], known: list[str], needed: str | None, monkeypatch: Any
) -> None:
    for name, result in {
        "is_available": True, "device_count": 1, "set_device": None, "get_arch_list": known,
        "get_device_capability": capability, "get_device_name": "GeForce GTX 1080",
        "current_device": 0,
    }.items():  # fmt: skip
        monkeypatch.setattr(f"torch.cuda.{name}", lambda *_, result=result: result)
    devices._refuse_too_old.cache_clear()
    try:
        if needed is None:
            assert devices.choose_device() == torch.device("cuda", 0)
        else:
            with pytest.raises(TrainingError, match=f"too old .* is 6.1, and {needed} is needed"):
                devices.choose_device()
    finally:
        devices._refuse_too_old.cache_clear()


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough"), True),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ValueError("CUDA error: out of memory"), False),
    ],
)
def test_errors_that_mean_too_little_memory(error: Exception, short: bool) -> None:
    """CUDA itself may lack memory for a graph or for a kernel, not only PyTorch's allocator."""
    assert devices.is_out_of_memory(error) == short


@pytest.mark.parametrize(
    ("flags", "native"),
    [("fpu sse avx512_bf16", True), ("amx_bf16 fpu", True), ("bf16", True), ("fpu avx512f", False)],
)
def test_a_processors_flags_tell_bf16(
    flags: str, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: f"flags\t\t: {flags}\nbugs\t: mds\n")
    assert devices.has_bf16(CPU) == native


def test_a_system_that_does_not_tell_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert not devices.has_bf16(CPU)


def test_threads_are_set_left_or_refused(threads: int) -> None:
    devices.set_threads(0)
    assert torch.get_num_threads() == threads
    devices.set_threads(3)
    assert torch.get_num_threads() == 3
    with pytest.raises(RecipeError, match="--threads -1"):
        devices.set_threads(-1)


def test_a_model_beyond_the_memory_is_refused_with_both_figures() -> None:
    devices.refuse_too_large(10**6, CPU)
    with pytest.raises(TrainingError, match=r"a model of 1,000,000,000,000 .* 20,000\.0 GB"):
        devices.refuse_too_large(10**12, CPU)


@pytest.mark.parametrize("setting", [None, "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"])
def test_malloc_is_told_to_keep_memory_unless_a_user_told_it_something(
    setting: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[int, int] = {}
    libc = SimpleNamespace(mallopt=told.__setitem__)
    monkeypatch.setattr("ctypes.CDLL", lambda name: libc)
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    if setting:
        monkeypatch.setenv(setting, "2")
    devices.keep_freed_memory()
    assert told.keys() == (set() if setting else {-1, -3, -8})  # trim, mmap, arenas


def test_an_old_glibc_gets_the_largest_threshold_that_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: dict[int, int] = {}

    def mallopt(setting: int, value: int) -> int:
        if setting == -3 and value > 2**25:
            return 0
        told[setting] = value
        return 1

    monkeypatch.setattr("ctypes.CDLL", lambda name: SimpleNamespace(mallopt=mallopt))
    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        monkeypatch.delenv(name)
    devices.keep_freed_memory()
    assert told == {-3: 2**25, -1: -1, -8: 1}


def test_a_libc_that_is_not_glibc_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise OSError(name)

    for library in (missing, lambda name: SimpleNamespace()):
        monkeypatch.setattr("ctypes.CDLL", library)
        devices.keep_freed_memory()


def count_page_faults(file: Path) -> None:
    """Write down how many pages each of three steps had to be given by the system."""
    import resource

    for name in [name for name in os.environ if name.startswith("MALLOC_")]:
        del os.environ[name]
    devices.keep_freed_memory()
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [torch.empty(2**25) for _ in range(17)]
        for block in blocks:
            block[:: 2**16] = 1.0  # in a page of every 64
        del blocks, block
        with file.open("a") as to:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, file=to)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc's malloc that keeps it")
def test_a_step_of_more_than_2_gib_finds_the_memory_of_the_one_before(tmp_path: Path) -> None:
    in_fork(count_page_faults, tmp_path / "faults")
    first, *later = map(int, (tmp_path / "faults").read_text().split())
    assert first > 5 * min(later)  # a different layout of blocks may need more memory


def test_the_gpu_is_that_of_the_caller_or_of_the_process_of_torchrun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chosen: list[int] = []
    for name, result in {"is_available": True, "device_count": 4, "current_device": 3}.items():
        monkeypatch.setattr(f"torch.cuda.{name}", lambda result=result: result)
    monkeypatch.setattr("torch.cuda.set_device", chosen.append)
    monkeypatch.setattr(devices, "_refuse_too_old", lambda _: None)
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    assert devices.choose_device() == torch.device("cuda", 3)
    monkeypatch.setenv("LOCAL_RANK", "")
    assert devices.choose_device() == torch.device("cuda", 3)
    assert not chosen
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert devices.choose_device() == torch.device("cuda", 1)
    assert chosen == [1]
