"""Forward passes of other programs, written from the definitions of their formats in plain torch.

Each reads the weights under the program's own names, for one sentence, and shares nothing with
regard. Weights are drawn here as well, in the shapes that the program would save.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Named = dict[str, Tensor]


def attended(q: Tensor, k: Tensor, v: Tensor, heads: int, *, causal: bool = False) -> Tensor:
    """[queries, d_model] Scaled dot-product attention in heads, before the output projection."""
    parts = []
    for a, b, c in zip(q.chunk(heads, 1), k.chunk(heads, 1), v.chunk(heads, 1), strict=True):
        scores = a @ b.T / math.sqrt(a.shape[1])
        if causal:
            scores = scores + torch.full_like(scores, -torch.inf).triu(1)
        parts.append(scores.softmax(-1) @ c)
    return torch.cat(parts, dim=1)


def normal(*shape: int, std: float = 0.3) -> Tensor:
    return torch.randn(*shape) * std


def marian_weights(
    sizes: tuple[int, int], d: int, ff: int, depths: tuple[int, int], *, pre: bool, tied: str
) -> Named:
    """The parameters of marian-nmt; `tied` is "all", "target" or "none"."""
    found: Named = {}
    if tied == "all":
        found["Wemb"] = normal(sizes[0], d)
    else:
        found["encoder_Wemb"], found["decoder_Wemb"] = normal(sizes[0], d), normal(sizes[1], d)
    if tied == "none":
        found["decoder_ff_logit_out_W"] = normal(d, sizes[1])
    found["decoder_ff_logit_out_b"] = normal(1, sizes[1], std=1.0)
    end = "_pre" if pre else ""

    def norm(name: str, end: str) -> None:
        found[f"{name}_ln_scale{end}"] = 1 + normal(1, d)
        found[f"{name}_ln_bias{end}"] = normal(1, d)

    for stack, depth in zip(("encoder", "decoder"), depths, strict=True):
        for i in range(1, depth + 1):
            for kind in ("self", "context")[: 1 if stack == "encoder" else 2]:
                name = f"{stack}_l{i}_{kind}"
                for one in "qkvo":
                    found[f"{name}_W{one}"], found[f"{name}_b{one}"] = normal(d, d), normal(1, d)
                norm(f"{name}_Wo", end)
            name = f"{stack}_l{i}_ffn"
            found[f"{name}_W1"], found[f"{name}_b1"] = normal(d, ff), normal(1, ff)
            found[f"{name}_W2"], found[f"{name}_b2"] = normal(ff, d), normal(1, d)
            norm(f"{name}_ffn", end)
        if pre:
            norm(f"{stack}_top", "")
    return found


def marian_positions(count: int, d: int) -> Tensor:
    """Sines in the first half, cosines in the second; the last rate is 1 / 10000."""
    half, table = d // 2, torch.zeros(count, d)
    for p in range(count):
        for i in range(half):
            angle = p * math.exp(-i * math.log(10000.0) / (half - 1))
            table[p, i], table[p, half + i] = math.sin(angle), math.cos(angle)
    return table


def marian_logits(
    w: Named, source: list[int], target: list[int], *, heads: int, activation: str, pre: bool
) -> Tensor:
    """[len(target) + 1, vocabulary] Logits of marian-nmt; the target has no start symbol."""
    d = next(iter(w[k] for k in w if k.endswith("Wemb"))).shape[1]
    act: Callable[[Tensor], Tensor] = {"relu": F.relu, "swish": lambda x: x * x.sigmoid()}[
        activation
    ]

    def norm(x: Tensor, name: str, end: str) -> Tensor:
        gain, bias = w[f"{name}_ln_scale{end}"][0], w[f"{name}_ln_bias{end}"][0]
        return (x - x.mean(1, True)) / (x.var(1, False).unsqueeze(1) + 1e-6).sqrt() * gain + bias

    def around(x: Tensor, name: str, f: Callable[[Tensor], Tensor]) -> Tensor:
        return x + f(norm(x, name, "_pre")) if pre else norm(x + f(x), name, "")

    def project(x: Tensor, name: str, one: str) -> Tensor:
        return x @ w[f"{name}_W{one}"] + w[f"{name}_b{one}"]

    def layer(x: Tensor, name: str, memory: Tensor | None) -> Tensor:
        def attention(y: Tensor, of: str, keys: Tensor, causal: bool) -> Tensor:
            q, k, v = project(y, of, "q"), project(keys, of, "k"), project(keys, of, "v")
            return project(attended(q, k, v, heads, causal=causal), of, "o")

        own = f"{name}_self"
        x = around(x, f"{own}_Wo", lambda y: attention(y, own, y, memory is not None))
        if memory is not None:
            other = f"{name}_context"
            x = around(x, f"{other}_Wo", lambda y: attention(y, other, memory, False))
        ffn = f"{name}_ffn"
        return around(x, f"{ffn}_ffn", lambda y: project(act(project(y, ffn, "1")), ffn, "2"))

    def stack(x: Tensor, side: str, memory: Tensor | None) -> Tensor:
        i = 1
        while f"{side}_l{i}_self_Wq" in w:
            x = layer(x, f"{side}_l{i}", memory)
            i += 1
        return norm(x, f"{side}_top", "") if pre else x

    sources = w.get("encoder_Wemb", w.get("Wemb"))
    targets = w.get("decoder_Wemb", w.get("Wemb"))
    assert sources is not None and targets is not None
    x = sources[source] * math.sqrt(d) + marian_positions(len(source), d)
    begun = torch.cat([torch.zeros(1, d), targets[target]])  # a zero vector stands for the start
    y = begun * math.sqrt(d) + marian_positions(len(begun), d)
    y = stack(y, "decoder", stack(x, "encoder", None))
    output = w.get("decoder_ff_logit_out_W", targets.T)
    return y @ output + w["decoder_ff_logit_out_b"]


class Paper(nn.Module):
    """A Transformer of torch.nn with learned or given tables, for the formats that resemble it."""

    def __init__(self, d: int, heads: int, ff: int, depths: tuple[int, int], **options: Any):
        super().__init__()
        self.transformer = nn.Transformer(
            d, heads, *depths, ff, dropout=0.0, batch_first=True, **options
        )
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.3)

    def states(self, x: Tensor, y: Tensor) -> Tensor:
        """[target, d] The decoder's states for embedded source and target."""
        mask = nn.Transformer.generate_square_subsequent_mask(len(y))
        with torch.no_grad():
            return self.transformer.train()(x[None], y[None], tgt_mask=mask)[0]


def interleaved(count: int, d: int) -> Tensor:
    """Sines and cosines in turn, as in §3.5."""
    table = torch.zeros(count, d)
    for p in range(count):
        for i in range(0, d, 2):
            table[p, i] = math.sin(p / 10000 ** (i / d))
            table[p, i + 1] = math.cos(p / 10000 ** (i / d))
    return table


def _attention(state: Named, name: str) -> list[tuple[Tensor, Tensor]]:
    """The projections of queries, keys, values and outputs in a state dict of torch.nn."""
    weights = [*state[f"{name}.in_proj_weight"].chunk(3), state[f"{name}.out_proj.weight"]]
    biases = [*state[f"{name}.in_proj_bias"].chunk(3), state[f"{name}.out_proj.bias"]]
    return list(zip(weights, biases, strict=True))


def renamed(paper: Paper, names: dict[str, str], order: str, stacks: dict[str, str]) -> Named:
    """The layers of a Transformer of torch.nn under a program's names.

    `names` maps "encoder.self", "decoder.self", "decoder.cross", "<stack>.<n>.norm" with the number
    of the norm, "ff.1" and "ff.2"; `order` names the four projections, such as "q_layer k_layer
    v_layer output_layer"; `stacks` maps a stack to the prefix of its layers.
    """
    state, found = paper.transformer.state_dict(), {}
    for stack, prefix in stacks.items():
        kinds = {"self": "self_attn"} | ({"cross": "multihead_attn"} if stack == "decoder" else {})
        for i in range(len(getattr(paper.transformer, stack).layers)):
            theirs = f"{stack}.layers.{i}"
            for kind, attention in kinds.items():
                for one, (weight, bias) in zip(
                    order.split(), _attention(state, f"{theirs}.{attention}"), strict=True
                ):
                    stem = f"{prefix}{i}.{names[f'{stack}.{kind}']}.{one}"
                    found[f"{stem}.weight"], found[f"{stem}.bias"] = weight, bias
            pairs = {"linear1": names["ff.1"], "linear2": names["ff.2"]}
            count = 2 if stack == "encoder" else 3
            pairs |= {f"norm{n}": names[f"{stack}.{n}.norm"] for n in range(1, count + 1)}
            for ours, other in pairs.items():
                for end in ("weight", "bias"):
                    found[f"{prefix}{i}.{other}.{end}"] = state[f"{theirs}.{ours}.{end}"]
    return {name: tensor.clone() for name, tensor in found.items()}
