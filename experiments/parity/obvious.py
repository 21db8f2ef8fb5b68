"""The `regard` command with every fast path replaced by the obvious one that defines it.

    python experiments/parity/obvious.py train --set training.precision=fp32 ...

Attention keeps its weights, dropout is PyTorch's, Add & Norm is a sum and a LayerNorm, the loss
sees all logits of the batch at once, and no batch is halved. Only for comparison: it is several
times slower.
"""

import math

import torch.nn.functional as F
from torch import Tensor, nn

import regard.attention
import regard.layers
import regard.training
from regard.arithmetic.attention import Mask
from regard.cli.main import main
from regard.loss import smoothed_loss


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0) -> Tensor:
    return regard.attention.attention(query, key, value, mask.allowed, dropout)[0]


def add_norm(x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
    return norm(x + F.dropout(y, dropout))


def cross_entropy(
    states: Tensor, embedding: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    smoothed, plain = smoothed_loss(F.linear(states, embedding), labels, smoothing)
    return smoothed, plain.detach()


if __name__ == "__main__":
    regard.attention.attend = attend
    regard.layers.add_norm = add_norm
    regard.layers.drop = F.dropout
    regard.training.smoothed_cross_entropy = cross_entropy
    regard.training.MUCH = math.inf
    main()
