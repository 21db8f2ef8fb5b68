"""Compute on a GPU: fused attention, the loss in large chunks, Adam in one pass, our own kernels.

No function here waits for the GPU, because none copies numbers from the GPU or to the GPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.arithmetic.cross_entropy import softmax_gradient
from regard.arithmetic.fused import Fused
from regard.arithmetic.graphs import RecordedSteps
from regard.arithmetic.kernels.kernel import LAUNCHING, Kernel
from regard.arithmetic.products import CublasProducts, Products
from regard.arithmetic.ranking import BLOCK, Summary
from regard.cache import Cache
from regard.equations import Adam, Learned, Mask
from regard.machine.compiled import compiled
from regard.machine.devices import is_out_of_memory
from regard.machine.streams import Streams

EFFICIENT = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""The attention kernels of PyTorch that `Cuda` may use by default. EFFICIENT_ATTENTION is fast for
short rows and takes masks; MATH takes head sizes that EFFICIENT_ATTENTION refuses. cuDNN's kernel
is left out, because it spends time to build a plan for each new shape."""
CUDNN = [SDPBackend.CUDNN_ATTENTION, *EFFICIENT]
"""The attention kernels, with cuDNN's, for training in which all batches have one shape."""
STEPS_UNSEEN = 32
"""In a search, the host looks at the results only once in this number of steps. After each look,
the host prepares the next steps, which takes as long as several steps. A sentence that has ended
takes part in the steps until the next look, and maybe in later steps; none of these steps adds a
token to the sentence."""
STREAMS = 2 if tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 11) else 1
"""This many batches are decoded at the same time: the GPU computes one batch while the host records
the next step of the other batch. With PyTorch before 2.11, the number is 1, because such a PyTorch
may crash if two threads use cuBLAS for the first time, or may refuse to replay a graph while
another thread records a graph."""
LARGE_BATCH = 65_536
"""Decoding puts at most this many source tokens in a batch, even on a GPU with much memory."""
TOKEN_BYTES = 460_000
"""The memory in bytes that decoding takes for each source token: the keys, values and logits of
the big model in fp32, with a beam of 4 and sentences of 14 tokens or more (calculated). The base
model in bf16 took a third of this memory. Short sentences need more memory for each token: a batch
of short sentences that does not fit is decoded in halves."""
MUCH_MEMORY = 40 * 10**9
"""A GPU with at least this many bytes of memory computes the loss in chunks of at most
`LARGE_CHUNK` tokens."""
LARGE_CHUNK = 32_768
"""The most tokens in a chunk of the loss on a GPU with `MUCH_MEMORY`. With chunks of 8,192
tokens instead, a training step of the base model on an H200 took about 1 ms longer, and used 2.6 GB
less memory."""
ATTEND, WRITE, ADD_NORM = Kernel("attend"), Kernel("write"), Kernel("add_norm")
RANKING, SUMMARY = Kernel("ranking"), Kernel("summary")
"""Kernels of decoding. Where a kernel cannot be used, PyTorch's operations take its place."""
SOFTMAX_GRADIENT = Kernel("softmax_gradient")
"""A kernel of the loss. Where it cannot be used, PyTorch's operations take its place."""
MOST_QUERIES = 16
"""The kernel `ATTEND` computes at most this many queries for each row and head."""
MOST_WIDTH = 128
"""The kernel `ATTEND` computes heads whose d_k and d_v are at most this number."""
MOST_VALUES = 8192
"""The kernel `RANKING` ranks at most this many values of each sentence."""
_STRIDES = 16
"""In memory, each row of a bias of the scores begins at a multiple of `_STRIDES` numbers, because
EFFICIENT_ATTENTION would copy a bias whose rows begin elsewhere."""


class CudaMask(Mask):
    """A mask for PyTorch's fused attention kernels.

    For a query that may attend to no key, a kernel may give NaN. In the mask `open`, such a query
    may therefore attend to every key, and `Cuda.attend` sets the query's output to 0 afterwards.
    """

    def __init__(self, allowed: Bool[Tensor, "#rows 1 #queries keys"]):
        super().__init__(allowed)
        self._reachable: Tensor | None = None
        self._open: Tensor | None = None
        self._bias: Tensor | None = None

    @property
    def reachable(self) -> Bool[Tensor, "#rows 1 #queries 1"]:
        """True for each query that may attend to at least one key."""
        if self._reachable is None:
            self._reachable = self.allowed.any(-1, keepdim=True)
        return self._reachable

    @property
    def open(self) -> Bool[Tensor, "#rows 1 #queries keys"]:
        """The mask `allowed`, but a query without any allowed key may attend to every key."""
        if self._open is None:
            self._open = self.allowed | ~self.reachable
        return self._open

    def bias(self, dtype: torch.dtype) -> Float[Tensor, "#rows 1 #queries keys"]:
        """The bias of the scores: 0 where `open` is True, else -inf.

        This method makes the bias once for all layers, with the strides that the kernel needs.
        If the kernel got `open`, the kernel would make such a bias again in each layer.
        """
        if self._bias is None or self._bias.dtype != dtype:
            closed = F.pad(~self.open, (0, -self.open.shape[-1] % _STRIDES))
            bias = torch.zeros_like(closed, dtype=dtype).masked_fill_(closed, -torch.inf)
            self._bias = bias[..., : self.open.shape[-1]]
        return self._bias


class CudaCache(Cache):
    """A cache; the kernel `WRITE`, if it can be used, writes keys and values into given slots."""

    def write(self, keys: Tensor, values: Tensor, places: Tensor) -> None:
        """Write keys and values into the slots `places` of each sentence."""
        if WRITE(self.keys, self.values, keys, values, places) is None:
            super().write(keys, values, places)


class Cuda(Fused):
    """Computes every equation in the way that is fast on a GPU.

    `learning` is True if losses have gradients, `kernels` has the attention kernels that may be
    used, `products` computes the products of states and weights, and `streams` has the threads that
    decode batches.
    """

    # A window has many sentences, because all streams need batches.
    window = 16_384
    # A batch has many tokens, because even a small step takes milliseconds to launch.
    batch_tokens = 16_384
    side_by_side = False
    chunk = 8192
    """The loss computes the logits of at most this many tokens together: enough to fill a GPU."""
    logits_at_once = 2**27
    """If the kernel `SUMMARY` cannot be used, `summarize` reads at most this many logits at a time:
    512 MiB in fp32."""

    def __init__(
        self,
        *,
        learning: bool,
        kernels: list[SDPBackend] = EFFICIENT,
        products: Products | None = None,
        streams: Streams | None = None,
    ):
        self.learning, self.kernels, self.products = learning, kernels, products or CublasProducts()
        self.streams = streams
        self.granule = RecordedSteps(STEPS_UNSEEN)

    def with_memory(self, bytes_: int) -> Self:
        """Set the sizes of batches and chunks for a GPU with `bytes_` bytes; return this object."""
        # A quarter of the memory is left for weights, and for all else that is not in TOKEN_BYTES.
        self.batch_tokens = min(LARGE_BATCH, 3 * bytes_ // (4 * STREAMS * TOKEN_BYTES))
        if bytes_ >= MUCH_MEMORY:
            self.chunk = LARGE_CHUNK
        return self

    def mask(self, allowed: Tensor) -> Mask:
        """A mask for PyTorch's fused attention kernels."""
        return CudaMask(allowed)

    def cache(self, keys: Tensor, values: Tensor) -> Cache:
        """A cache of exactly these keys and values, without unused slots for later tokens."""
        return CudaCache(keys, values)

    def add_norm(self, x: Tensor, y: Tensor, norm: nn.LayerNorm, dropout: float = 0.0) -> Tensor:
        """LayerNorm(x + Dropout(y)); without dropout and gradients, by one kernel if possible."""
        output = None if self.learning or dropout else ADD_NORM(x, y, norm)
        return super().add_norm(x, y, norm, dropout) if output is None else output

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Mask, dropout: float = 0.0
    ) -> Tensor:
        """Equation (1), by the kernel `ATTEND` or by PyTorch's attention kernels.

        Without gradients and dropout, `ATTEND` computes up to `MOST_QUERIES` queries in heads of at
        most `MOST_WIDTH`, if it can be used on this machine.
        """
        assert isinstance(mask, CudaMask)
        if not (self.learning or dropout) and _are_few(query, value):
            output = ATTEND(query, key, value, mask.allowed)
            if output is not None:
                return output
        where = mask.open if self.learning else mask.bias(query.dtype)
        with sdpa_kernel(self.kernels) if self.learning else _in_turn(self.kernels):
            output = F.scaled_dot_product_attention(query, key, value, where, dropout)
        return output * mask.reachable

    def summarize(self, logits: Tensor) -> Summary:
        """The `Summary` of the logits, if possible by a kernel that reads the logits only once."""
        found = SUMMARY(logits, BLOCK)
        return super().summarize(logits) if found is None else Summary(*found)

    def rank(self, values: Tensor, count: int) -> Tensor:
        """The indices of the `count` largest values of each sentence, by one kernel if possible."""
        found = RANKING(values, count) if values.shape[1] <= MOST_VALUES else None
        return super().rank(values, count) if found is None else found

    def adam(self, learned: Learned, constants: Adam, rate: float, tokens: int | Tensor) -> None:
        """Adam as one compiled pass over the weights.

        PyTorch's fused Adam is used if the model's weights are in fp32, or if compiling fails.
        """
        if learned.weights is learned.master or self._one_pass is None:
            super().adam(learned, constants, rate, tokens)
            return
        # Rate and tokens become tensors, because PyTorch compiles again for each new Python number.
        one = torch.full_like(learned.moments.updates, 1.0)
        try:
            self._one_pass(learned, constants, one * rate, one * tokens)
        except Exception as error:  # compiling may raise any exception; nothing is changed then
            if is_out_of_memory(error):
                raise
            self._one_pass = None
            self.adam(learned, constants, rate, tokens)

    @cached_property
    def _one_pass(self) -> Any:
        return compiled(adam_in_one_pass)

    def chunk_of(self, tokens: int) -> int:
        """The size of a chunk; tokens are divided into as few chunks as possible.

        A chunk has at most `chunk` tokens, and chunks are of nearly equal sizes. Few chunks are
        best, because each chunk reads all embeddings.
        """
        return max(1, -(-tokens // max(1, -(-tokens // self.chunk))))

    def softmax_gradient(
        self, logits: Tensor, labels: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        """Turn logits into softmax - (1 - smoothing) * onehot, in place.

        `logits` is [tokens, vocabulary], and `labels` is [tokens, 1]. Returns each label's logit
        and log-probability, both in fp32, [tokens, 1].
        """
        right, log_p = softmax_gradient_in_place(logits, labels, smoothing)
        return right, log_p

    def is_one(self, gradient: Tensor) -> bool:
        """Always return False: to compare the gradient with 1, the host would wait for the GPU."""
        return False


@contextmanager
def _in_turn(kernels: list[SDPBackend]) -> Iterator[None]:
    """Like `sdpa_kernel`, but for one thread at a time: `sdpa_kernel` affects all threads."""
    with LAUNCHING, sdpa_kernel(kernels):
        yield


def _are_few(query: Tensor, value: Tensor) -> bool:
    """Whether `ATTEND` can compute these queries."""
    return query.shape[2] <= MOST_QUERIES and max(query.shape[3], value.shape[3]) <= MOST_WIDTH


@torch.library.custom_op("regard::softmax_gradient", mutates_args=("logits",))
def softmax_gradient_in_place(
    logits: Tensor, labels: Tensor, smoothing: float
) -> tuple[Tensor, Tensor]:
    """`Cuda.softmax_gradient`, as one operation that a compiler does not look into."""
    found = SOFTMAX_GRADIENT(logits, labels, smoothing) if logits.stride(1) == 1 else None
    right, log_p = softmax_gradient(logits, labels, smoothing) if found is None else found
    return right, log_p


@softmax_gradient_in_place.register_fake
def _(logits: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    right = torch.empty_like(labels, dtype=torch.float32)
    return right, torch.empty_like(right)


def adam_in_one_pass(learned: Learned, constants: Adam, rate: Tensor, tokens: Tensor) -> None:
    """Update weights as `Arithmetic.adam` specifies; the function compiles to one kernel."""
    master, weights, gradient, (updates, mean, variance) = learned
    beta1, beta2, epsilon = constants
    updates += 1
    mean_scale, variance_scale = 1 - beta1**updates, (1 - beta2**updates).sqrt()
    one = gradient.float() / tokens
    mean.lerp_(one, 1 - beta1)
    variance.mul_(beta2).addcmul_(one, one, value=1 - beta2)
    master -= rate / mean_scale * mean / (variance.sqrt() / variance_scale + epsilon)
    weights.copy_(master)
    gradient.zero_()
