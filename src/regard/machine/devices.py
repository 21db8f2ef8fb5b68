"""Choose the device that computes, and set up its memory and threads."""

import ctypes
import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import RecipeError, TrainingError
from regard.machine.cores import usable_cores
from regard.machine.memory import all_bytes

GRAPHS = threading.Lock()
"""A thread holds this lock while it releases memory, or records a CUDA graph for decoding. PyTorch
cannot release memory while a thread records, and only one recording at a time can use PyTorch's
random number generator. Compiled training steps record their graphs without this lock."""
_SHORT = (
    "DefaultCPUAllocator",
    "CUDA error: out of memory",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""Parts of the messages of RuntimeErrors that mean too little memory."""
MOST_THREADS = 1024
"""More threads than this are refused: if the system could not start them, the process would end."""


def choose_device() -> torch.device:
    """A GPU if there is one, otherwise the CPU; each process of torchrun gets its own GPU.

    With torchrun, this GPU becomes PyTorch's current GPU. Without torchrun, the result is PyTorch's
    current GPU.

    Raises TrainingError if there is no GPU left for this process, or if the GPU is too old for the
    installed PyTorch.
    """
    if not torch.cuda.is_available():
        return torch.device("cpu")
    rank, gpus = os.environ.get("LOCAL_RANK") or None, torch.cuda.device_count()
    number = torch.cuda.current_device() if rank is None else int(rank)
    if number >= gpus:
        raise TrainingError(
            f"process {number + 1} has no GPU, for this host has {gpus}: start torchrun with "
            f"--nproc-per-node {gpus}"
        )
    if rank is not None:
        torch.cuda.set_device(number)
    _refuse_too_old(number)
    return torch.device("cuda", number)


@cache
def _refuse_too_old(number: int) -> None:
    """Raise TrainingError if this GPU is older than any that the installed PyTorch supports."""
    known = [int(name[3:].rstrip("af")) for name in torch.cuda.get_arch_list() if name[:3] == "sm_"]
    major, minor = torch.cuda.get_device_capability(number)
    if known and 10 * major + minor < min(known):
        least = "{}.{}".format(*divmod(min(known), 10))
        raise TrainingError(
            f"{torch.cuda.get_device_name(number)} is too old for this PyTorch: its compute "
            f"capability is {major}.{minor}, and {least} is needed: install PyTorch for an earlier "
            'CUDA, or set CUDA_VISIBLE_DEVICES="" to compute on the CPU'
        )


def has_avx2() -> bool:
    """Whether this is an x86 processor with vector instructions for integers (AVX2 or later)."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def has_bf16(device: torch.device) -> bool:
    """Whether the device has instructions that make matrix products in bf16 faster than in fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    try:
        flags = set(Path("/proc/cpuinfo").read_text().split())
    except OSError:
        return False
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def refuse_too_large(parameters: int, device: torch.device, shards: int = 1) -> None:
    """Raise TrainingError if the device's memory cannot hold a model and its optimizer.

    If the model is divided into `shards`, one for each process, the memory must hold one shard.
    """
    memory = all_bytes(device)
    # Each parameter takes 4 bytes for its weight, 8 for two moments, 4 for the gradient of a step
    # and, without shards, 4 for the gradient of a batch.
    needed = 20 * parameters if shards == 1 else 16 * parameters // shards
    if needed > memory:
        each = " in each process" if shards > 1 else ""
        raise TrainingError(
            f"a model of {parameters:,} parameters takes {needed / 1e9:,.1f} GB{each} to train, "
            f"and there are {memory / 1e9:,.1f} GB: lower model.layers, model.d_model or "
            "model.d_ff, or divide it among more processes (torchrun and --shard)"
        )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device has too little memory."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    # PyTorch's allocator on a CPU, CUDA itself (for a graph or a kernel), and cuBLAS raise
    # RuntimeError.
    return isinstance(error, RuntimeError) and any(what in str(error) for what in _SHORT)


def free_memory(device: torch.device) -> None:
    """Collect garbage; on a GPU, also release the memory that PyTorch keeps for later tensors."""
    gc.collect()
    if device.type == "cuda":
        with GRAPHS:
            torch.cuda.empty_cache()


def moved(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on this device; the program does not wait until a copy to a GPU is done."""
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        # Only a copy from pinned memory is asynchronous.
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def computes_beside(device: torch.device) -> bool:
    """Whether this process can do other work while the device computes: True for a GPU."""
    return device.type != "cpu"


def tells_full_memory(device: torch.device) -> bool:
    """Whether running out of memory raises an error; on a CPU, the system may kill the process."""
    return device.type != "cpu"


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished all its work; a CPU has always finished it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def begin_stream(device: torch.device) -> None:
    """Let this thread use another stream of the device; do nothing on a CPU.

    PyTorch has 32 such streams. If more are asked for, threads share them.
    """
    if device.type == "cuda":
        torch.cuda.set_stream(torch.cuda.Stream(device))


def wait_for_stream(device: torch.device) -> None:
    """Wait until the device has finished the work of this thread's stream."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


@contextmanager
def random_numbers_kept(device: torch.device) -> Iterator[None]:
    """After a `with` block, restore PyTorch's random number generators for CPU and device.

    The numbers that PyTorch draws after the block therefore do not depend on the block.
    """
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def set_threads(threads: int) -> None:
    """Use this many cores; 0 keeps PyTorch's own number, but not more than `usable_cores()`.

    Raises RecipeError for a negative number, or for more than MOST_THREADS.
    """
    if not 0 <= threads <= MOST_THREADS:
        raise RecipeError(f"--threads {threads}: give up to {MOST_THREADS} cores, or 0 for all")
    if threads:
        torch.set_num_threads(threads)
    elif (cores := usable_cores()) < torch.get_num_threads():
        torch.set_num_threads(cores)


def be_deterministic() -> None:
    """Make a GPU sum in a fixed order, as a CPU does, so that results repeat; this is slower.

    Call this before anything is computed. An operation without a fixed order raises RuntimeError.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


def return_freed_memory() -> None:
    """Undo `keep_freed_memory`: malloc has its initial settings again, and returns freed memory.

    If the user has set any MALLOC_ variable, or if malloc is not glibc's, this function does
    nothing.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        for setting, usual in ((-3, 2**17), (-1, 2**17), (-8, 0)):
            libc.mallopt(setting, usual)
        libc.malloc_trim(0)
    except (OSError, AttributeError):
        pass


def keep_freed_memory() -> None:
    """Make malloc keep large freed blocks for the next step, and not return them to the system.

    With malloc's default settings, a training step on a CPU spends a tenth of its time in page
    faults. Only glibc has these settings. If the user has set any MALLOC_ variable, this function
    does nothing.
    """
    if any(name.startswith("MALLOC_") for name in os.environ):
        return
    try:
        libc = ctypes.CDLL("libc.so.6")
        m_mmap_threshold, m_trim_threshold, m_arena_max = -3, -1, -8
        if not libc.mallopt(m_mmap_threshold, 2**31 - 1):
            libc.mallopt(m_mmap_threshold, 2**25)  # older versions of glibc take no larger number
        # With -1, freed memory is never returned to the system. The largest threshold, 2 GiB, would
        # be too low for a large step.
        libc.mallopt(m_trim_threshold, -1)
        # All threads use one arena: a thread's own arena cannot hold blocks of over 64 MB.
        libc.mallopt(m_arena_max, 1)
    except (OSError, AttributeError):
        pass
