"""The Transformer as two ONNX graphs, node by node: the encoder, and one step of the decoder.

    encoder   source [sentences, source]  ->  keys and values of the memory, for each decoder layer
    decoder   tokens [rows], source [rows, source], these keys and values, the past  ->  logits
              [rows, vocabulary], and the past with one position more

The axis named source is the length of the padded sources. The memory is the encoder's output. A row
is one hypothesis. The past has, for each decoder layer, the keys [rows, heads, length, d_k] and the
values [rows, heads, length, d_v] of self-attention at all earlier positions. In the first step, the
token is <s>, and length is 0. The source's padding has the id 0. The number of heads, d_k, d_v and
the size of the vocabulary are fixed; all other axes are dynamic.

The keys of decoder layer i are named memory_key_i for the memory, past_key_i for the past as an
input, and key_i for the past as an output. The values are named memory_value_i, past_value_i and
value_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import MissingExtra
from regard.exchange.parts import NamedWeights, matrices_of
from regard.recipe import ModelRecipe
from regard.text.tokenizer import EOS, PAD

try:
    from onnx import ModelProto, TensorProto, helper, numpy_helper
except ModuleNotFoundError:
    raise MissingExtra("ONNX", "exchange") from None

OPSET = 17
"""The version of ONNX's operators; 17 is the first that has LayerNormalization."""
IR_VERSION = 8
"""The version of ONNX's file format that belongs to OPSET."""


class Graph:
    """A graph that is built node by node; a value in the graph is known by its name.

    A method that adds a value to the graph returns the value's name.
    """

    def __init__(self, recipe: ModelRecipe, weights: NamedWeights, positions: NDArray[np.float32]):
        self.recipe, self._weights, self._positions = recipe, weights, positions
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def model(self, name: str) -> ModelProto:
        """The graph that was built, as an ONNX model with the name `name`."""
        constants = list(self._constants.values())
        graph = helper.make_graph(self._nodes, name, self._inputs, self._outputs, constants)
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(
            graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="regard"
        )

    def input(self, name: str, shape: Sequence[str | int], kind: int = TensorProto.FLOAT) -> str:
        """Declare an input of the graph; an axis is dynamic if it has a name in place of a size.

        `kind` is the data type of the input, a constant of `TensorProto`.
        """
        self._inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, value: str, name: str, shape: Sequence[str | int]) -> None:
        """Declare the value with the name `value` as an output of the graph, with the name `name`.

        An axis is dynamic if `shape` has a name in place of its size.
        """
        self._nodes.append(helper.make_node("Identity", [value], [name], name=name))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def constant(self, name: str, values: Any) -> str:
        """Add a constant, unless the graph already has a constant of this name."""
        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(values), name)
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Add the model's weight with this name as a constant, unless the graph already has it."""
        values = self._weights[name]
        return self.constant(name + ".T" * transposed, values.T if transposed else values)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Add a node that computes the ONNX operator `kind`, and has one output."""
        name = f"{kind}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def integers(self, *values: int) -> str:
        """Add a constant vector of whole numbers."""
        return self.constant(f"int {values}", np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a constant number in fp32."""
        return self.constant(f"float {value}", np.array(value, np.float32))

    def linear(self, x: str, name: str) -> str:
        """Add a linear layer, x W^T + b, with the weights of the module `name`."""
        product = self.node("MatMul", x, self.weight(f"{name}.weight", transposed=True))
        return self.node("Add", product, self.weight(f"{name}.bias"))

    def embedded(self, ids: str, first: str, matrix: str) -> str:
        """§3.4 and §3.5: add the embedding [rows, length, d_model] of tokens [rows, length].

        `matrix` is the name of the embedding's weight. Positions begin at `first`, a vector of one
        number.
        """
        scaled = self.node("Gather", self.weight(matrix), ids)
        if self.recipe.embedding_scale:
            scaled = self.node("Mul", scaled, self.number(self.recipe.d_model**0.5))
        length = self.node("Gather", self.node("Shape", ids), self.integers(1))
        end = self.node("Add", first, length)
        table = self.constant("positions", self._positions)
        return self.node("Add", scaled, self.node("Slice", table, first, end, self.integers(0)))

    def norm(self, x: str, name: str) -> str:
        """Add LayerNorm(x), with the weights of the module `name`."""
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        epsilon = self.recipe.norm_epsilon
        return self.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=epsilon)

    def before(self, x: str, name: str) -> str:
        """The input of the sub-layer `name`: x or, with pre-norm, LayerNorm(x)."""
        return self.norm(x, f"{name}.norm") if self.recipe.norm == "pre" else x

    def after(self, x: str, sublayer: str, name: str) -> str:
        """§3.1: add LayerNorm(x + Sublayer(x)) or, with pre-norm, x + Sublayer(x).

        `sublayer` is the value of Sublayer(x). If `model.residual` is False, x is left out.
        """
        total = self.node("Add", x, sublayer) if self.recipe.residual else sublayer
        return total if self.recipe.norm == "pre" else self.norm(total, f"{name}.norm")

    def last(self, x: str, name: str) -> str:
        """The output of a stack (encoder or decoder), from the output x of its last layer.

        If `model.norm` is "post", the output of the stack is x. Otherwise, it is LayerNorm(x).
        """
        return x if self.recipe.norm == "post" else self.norm(x, name)

    def feed_forward(self, x: str, name: str) -> str:
        """§3.3: add FFN(x) of equation (2) or, with pre-norm, FFN(LayerNorm(x))."""
        inner = self.linear(self.before(x, name), f"{name}.W_1")
        return self.linear(self._activated(inner), f"{name}.W_2")

    def _activated(self, x: str) -> str:
        match self.recipe.activation:
            case "relu":
                return self.node("Relu", x)
            case "swish":
                return self.node("Mul", x, self.node("Sigmoid", x))
            case "gelu":  # x · Phi(x) = x/2 · (1 + erf(x / sqrt(2)))
                erf = self.node("Erf", self.node("Mul", x, self.number(0.5**0.5)))
                half = self.node("Mul", x, self.number(0.5))
                return self.node("Mul", half, self.node("Add", erf, self.number(1.0)))

    def by_head(self, x: str, name: str, heads: int) -> str:
        """Add the linear layer `name`, and split its output into heads: [rows, heads, length, d].

        x is [rows, length, d_model]; d is d_k or d_v.
        """
        y = self.linear(x, name)
        y = self.node("Reshape", y, self.integers(0, 0, heads, -1))
        return self.node("Transpose", y, perm=[0, 2, 1, 3])

    def attended(self, query: str, keys: str, values: str, blocked: str, name: str) -> str:
        """§3.2: add attention in each head, then W^O; the result is [rows, queries, d_model].

        `query` and `keys` are [rows, heads, length, d_k], and `values` is [rows, heads, length,
        d_v]. `blocked` is [rows or 1, 1, 1, keys or 1], and True at keys that no query attends to.
        """
        scores = self._scores(query, keys, name)
        scores = self.node("Where", blocked, self.number(float(np.finfo(np.float32).min)), scores)
        heads = self.node("MatMul", self.node("Softmax", scores, axis=-1), values)
        joined = self.node("Transpose", heads, perm=[0, 2, 1, 3])
        joined = self.node("Reshape", joined, self.integers(0, 0, -1))
        return self.linear(joined, f"{name}.W_o")

    def _scores(self, query: str, keys: str, name: str) -> str:
        """[rows, heads, queries, keys] Add the score of each query for each key (§3.2.1)."""
        if self.recipe.score == "additive":
            one, other = (
                self.node("Unsqueeze", x, self.integers(axis))
                for x, axis in ((query, 3), (keys, 2))
            )
            hidden = self.node("Tanh", self.node("Add", one, other))
            w = self._weights[f"{name}.w"][:, None, :, None]
            product = self.node("MatMul", hidden, self.constant(f"{name}.w", w))
            return self.node("Squeeze", product, self.integers(4))
        if self.recipe.score == "scaled":
            query = self.node("Mul", query, self.number(self.recipe.d_k**-0.5))
        return self.node("MatMul", query, self.node("Transpose", keys, perm=[0, 1, 3, 2]))

    def blocked(self, source: str) -> str:
        """[rows, 1, 1, source] True at each source token that no query attends to.

        No query attends to padding or, if `source_end` is False, to </s>.
        """
        blocked = self.node("Equal", source, self.integers(PAD))
        if not self.recipe.source_end:
            is_end = self.node("Equal", source, self.integers(EOS))
            blocked = self.node("Or", blocked, is_end)
        return self.node("Unsqueeze", blocked, self.integers(1, 2))


def encoder_graph(
    recipe: ModelRecipe, weights: NamedWeights, positions: NDArray[np.float32]
) -> ModelProto:
    """The graph of the encoder; it outputs keys and values of the memory for each decoder layer.

    `positions` are the positional encodings of the source, [positions, d_model]. This module's
    docstring names the inputs and outputs.
    """
    graph = Graph(recipe, weights, positions)
    source = graph.input("source", ["sentences", "source"], TensorProto.INT64)
    x = graph.embedded(source, graph.integers(0), matrices_of(recipe).source)
    blocked = graph.blocked(source)
    for i in range(recipe.layers):
        name, own = f"encoder.{i}", f"encoder.{i}.self_attention"
        normed = graph.before(x, own)
        query, keys, values = (graph.by_head(normed, f"{own}.W_{p}", recipe.heads) for p in "qkv")
        x = graph.after(x, graph.attended(query, keys, values, blocked, own), f"{name}.add_norm_1")
        x = graph.after(x, graph.feed_forward(x, f"{name}.feed_forward"), f"{name}.add_norm_2")
    x = graph.last(x, "encoder_norm")
    reader = recipe.decoder
    for i in range(recipe.decoder_layers):
        for p, kind, width in (("k", "key", reader.d_k), ("v", "value", reader.d_v)):
            value = graph.by_head(x, f"decoder.{i}.cross_attention.W_{p}", reader.heads)
            shape: list[str | int] = ["sentences", reader.heads, "source", width]
            graph.output(value, f"memory_{kind}_{i}", shape)
    return graph.model("encoder")


def decoder_graph(
    recipe: ModelRecipe, weights: NamedWeights, positions: NDArray[np.float32]
) -> ModelProto:
    """The graph of one step of the decoder; its outputs are the logits and the new past.

    `positions` are the positional encodings of the target, [positions, d_model]. This module's
    docstring names the inputs and outputs.
    """
    graph = Graph(recipe.decoder, weights, positions)
    tokens = graph.input("tokens", ["rows"], TensorProto.INT64)
    source = graph.input("source", ["rows", "source"], TensorProto.INT64)
    caches = [_cache_inputs(graph, i) for i in range(recipe.decoder_layers)]
    length = graph.node("Gather", graph.node("Shape", caches[0][2]), graph.integers(2))
    ids = graph.node("Unsqueeze", tokens, graph.integers(1))
    y = graph.embedded(ids, length, matrices_of(recipe).target)
    blocked = graph.blocked(source)
    for i, cache in enumerate(caches):
        y = _decoder_layer(graph, y, i, cache, blocked)
    y = graph.last(graph.node("Squeeze", y, graph.integers(1)), "decoder_norm")
    bias = [graph.weight("output_bias")] if recipe.output_bias else []
    logits = graph.node("Gemm", y, graph.weight(matrices_of(recipe).output), *bias, transB=1)
    graph.output(logits, "logits", ["rows", "vocabulary"])
    return graph.model("decoder")


def _decoder_layer(graph: Graph, y: str, layer: int, cache: Sequence[str], blocked: str) -> str:
    """Add a decoder layer at one position; return the name of the layer's output.

    `y` is the layer's input, [rows, 1, d_model], and `cache` has the names that `_cache_inputs`
    returns. The keys and values of self-attention, at this position and at all earlier positions,
    become outputs of the graph.
    """
    memory_keys, memory_values, past_keys, past_values = cache
    recipe, name = graph.recipe, f"decoder.{layer}"
    own, cross = f"{name}.self_attention", f"{name}.cross_attention"
    normed = graph.before(y, own)
    query, keys, values = (graph.by_head(normed, f"{own}.W_{p}", recipe.heads) for p in "qkv")
    keys = graph.node("Concat", past_keys, keys, axis=2)
    values = graph.node("Concat", past_values, values, axis=2)
    graph.output(keys, f"key_{layer}", ["rows", recipe.heads, "length", recipe.d_k])
    graph.output(values, f"value_{layer}", ["rows", recipe.heads, "length", recipe.d_v])
    nowhere = graph.constant("nowhere", np.array([[[[False]]]]))
    y = graph.after(y, graph.attended(query, keys, values, nowhere, own), f"{name}.add_norm_1")
    query = graph.by_head(graph.before(y, cross), f"{cross}.W_q", recipe.heads)
    attended = graph.attended(query, memory_keys, memory_values, blocked, cross)
    y = graph.after(y, attended, f"{name}.add_norm_2")
    return graph.after(y, graph.feed_forward(y, f"{name}.feed_forward"), f"{name}.add_norm_3")


def _cache_inputs(graph: Graph, layer: int) -> list[str]:
    """Declare the inputs that a layer needs: keys and values of the memory and of the past.

    Returns the names of the inputs: memory keys, memory values, past keys, past values.
    """
    recipe = graph.recipe
    widths = {"key": recipe.d_k, "value": recipe.d_v}
    lengths = {"memory": "source", "past": "past"}
    return [
        graph.input(f"{kind}_{part}_{layer}", ["rows", recipe.heads, length, width])
        for kind, length in lengths.items()
        for part, width in widths.items()
    ]
