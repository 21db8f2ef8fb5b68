"""Which of its two ways a door goes: the doors ask here, so that a test may choose."""

from torch import Tensor


def on_cpu(tensor: Tensor) -> bool:
    """Whether a CPU computes with this tensor."""
    return tensor.device.type == "cpu"
