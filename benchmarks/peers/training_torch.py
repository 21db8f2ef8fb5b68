"""A straightforward program: torch.nn.Transformer, padded batches, full logits, torch.optim.Adam.

It has two norms more than the paper: nn.Transformer adds one after each stack.
Arguments: folder, and fp32 or bf16 (the same model under autocast).
"""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from training_batches import BETAS, EPSILON, RATE, Batch, Shape, Step, smoothed_loss, train_in_turn

DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}
LONGEST = 1024


class Straightforward(nn.Module):
    """The paper's model as a tutorial writes it; one embedding matrix for all three uses."""

    def __init__(self, shape: Shape):
        super().__init__()
        d = shape.d_model
        self.embedding = nn.Embedding(shape.vocabulary, d)
        nn.init.normal_(self.embedding.weight, std=d**-0.5)
        self.register_buffer("positions", sinusoids(d))
        self.dropout = nn.Dropout(shape.dropout)
        self.transformer = nn.Transformer(
            d, shape.heads, shape.layers, shape.layers, shape.d_ff, shape.dropout, batch_first=True
        )

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padding = source == 0
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        states = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return F.linear(states, self.embedding.weight)

    def embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * self.embedding.embedding_dim**0.5
        return self.dropout(x + self.positions[: ids.shape[1]])


def sinusoids(d: int) -> Tensor:
    angles = torch.outer(torch.arange(LONGEST), 10_000 ** (-torch.arange(0, d, 2) / d))
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)


def prepare(shape: Shape) -> tuple[nn.Module, Step]:
    model = Straightforward(shape).train()
    optimizer = torch.optim.Adam(model.parameters(), RATE, BETAS, EPSILON)
    dtype = DTYPE[sys.argv[2]]

    def step(batch: Batch) -> Tensor:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            logits = model(batch.source, batch.target)
            loss = smoothed_loss(logits, batch, shape)
        loss.backward()
        optimizer.step()
        return loss

    return model, step


if __name__ == "__main__":
    train_in_turn(str(DTYPE[sys.argv[2]]), {}, prepare)
