"""The machine's limit: the fastest sustained matrix product, in fp32 and in bf16.

The shapes are those of the model's layers and of its logits, and a large square one. A turn
measures each shape for a moment and answers with the best speed of each precision.
"""

import time
from typing import Any

import torch
from worker import Turn, serve

SHAPES = [
    (4096, 512, 2048),
    (4096, 2048, 512),
    (1024, 512, 37_000),
    (4096, 256, 1024),
    (4096, 4096, 4096),
]
"""m, k, n of an m x k matrix times a k x n matrix."""
SECONDS = 0.3
"""Seconds that a turn takes for each shape and precision."""


def start() -> tuple[dict[str, Any], Turn]:
    about = {
        "name": "training_ceiling",
        "version": {"torch": torch.__version__},
        "precision": "",
        "threads": torch.get_num_threads(),
    }
    return about, turn


def turn(_: dict[str, Any]) -> dict[str, Any]:
    begin = time.perf_counter()
    best = {
        str(dtype): max(rate(*shape, dtype) for shape in SHAPES)
        for dtype in (torch.float32, torch.bfloat16)
    }
    return {"seconds": time.perf_counter() - begin, "flop_per_second": best}


def rate(m: int, k: int, n: int, dtype: torch.dtype) -> float:
    """FLOP a second of x W^T, as a linear layer computes it."""
    x, weight = torch.randn(m, k).to(dtype), torch.randn(n, k).to(dtype)
    product = torch.mm(x, weight.T)
    done, begin = 0, time.perf_counter()
    while (seconds := time.perf_counter() - begin) < SECONDS:
        torch.mm(x, weight.T, out=product)
        done += 1
    return done * 2 * m * k * n / seconds


if __name__ == "__main__":
    serve(start)
