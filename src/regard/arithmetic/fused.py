"""The equations that a CPU and a GPU compute by the same operations of PyTorch."""

import torch
from torch import Tensor, nn

from regard.arithmetic.consistency import pair_gradient as of_two_passes
from regard.arithmetic.cross_entropy import cross_entropy_by_chunks
from regard.arithmetic.cross_entropy import softmax_gradient as of_one_pass
from regard.arithmetic.plain import Plain, torch_adam
from regard.arithmetic.products import Products
from regard.arithmetic.ranking import Summary, most_likely_by_blocks, summary
from regard.equations import Adam, Learned


class Fused(Plain):
    """Computes by fewer operations than `Plain`; `products` computes the linear layers."""

    products: Products
    chunk: int
    """The loss computes the logits of at most this many tokens together."""
    logits_at_once: int
    """`summarize` reads at most this many logits at a time, but at least a row."""
    learning: bool = True
    """Whether losses have gradients."""

    def lstm(self, x: Tensor, of_input: nn.Linear, of_state: nn.Linear) -> Tensor:
        """The LSTM by one operation of PyTorch; for cuDNN, all weights are put in one tensor."""
        weights = [of_input.weight, of_state.weight, of_input.bias, of_state.bias]
        if x.is_cuda:
            parts = torch.cat([w.flatten() for w in weights]).split([w.numel() for w in weights])
            weights = [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]
        zeros = x.new_zeros(1, len(x), of_state.in_features)
        y: Tensor = torch.lstm(x, (zeros, zeros), weights, True, 1, 0.0, True, False, True)[0]
        return y

    def linear(self, x: Tensor, *layers: nn.Linear, relu: bool = False) -> Tensor:
        """x W^T + b of all layers, side by side, by one product; then ReLU if `relu`."""
        return self.products.linear(self, x, layers, relu)

    cross_entropy = cross_entropy_by_chunks

    def chunk_of(self, tokens: int) -> int:
        """The number of tokens whose logits are computed together: `chunk`."""
        return self.chunk

    softmax_gradient = staticmethod(of_one_pass)
    pair_gradient = staticmethod(of_two_passes)

    def is_one(self, gradient: Tensor) -> bool:
        """Whether the gradient of the loss is 1, as when backward() starts from the loss."""
        return bool(gradient == 1)

    most_likely = most_likely_by_blocks

    def summarize(self, logits: Tensor) -> Summary:
        """The largest logit of each block of the vocabulary, and each row's log-sum-exp."""
        return summary(logits, self.logits_at_once)

    def adam(self, learned: Learned, constants: Adam, rate: float, tokens: int | Tensor) -> None:
        """PyTorch's fused Adam, in one pass over the weights."""
        scale = torch.ones_like(learned.moments.updates) * tokens
        gradient = learned.gradient.float()
        torch_adam(learned, gradient, constants, rate, grad_scale=scale)
