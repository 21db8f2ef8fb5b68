"""Take the weights of a foreign model by name and shape; rename the layers' weights for regard."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from regard.errors import ModelError
from regard.recipe import ModelRecipe

PartName = Callable[[str, int, str], str]
"""A function that gives the foreign name of a part of a layer.

Its arguments are "encoder" or "decoder", the number of the layer from 0, and the part. Parts of
self-attention are self.q, self.k, self.v, self.o and self.norm; parts of cross-attention are
cross.q and so on; parts of the feed-forward network are ff.1, ff.2 and ff.norm.
"""
_MODULES = {"self": "self_attention", "cross": "cross_attention", "ff": "feed_forward"}


class ForeignWeights:
    """The tensors of a foreign model by their foreign names; each tensor may be taken once."""

    def __init__(self, tensors: Mapping[str, Tensor], where: Path, *, biases: bool = True):
        """`where` is the path that errors name.

        If `biases` is False, a linear layer or LayerNorm without a bias gets a bias of zeros.
        """
        self._left, self._where, self._biases = dict(tensors), where, biases

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def names(self) -> list[str]:
        """The names of the tensors that have not been taken."""
        return list(self._left)

    def axes(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor with any number of axes.

        Raises KeyError if the tensor is missing or was taken.
        """
        return tuple(self._left[name].shape)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the matrix `name`; raises ModelError if no matrix of this name is left."""
        tensor = self._left.get(name)
        if tensor is None or tensor.ndim != 2:
            raise ModelError(f"{self._where}: has no matrix {name}: the model is not complete")
        return tuple(tensor.shape)

    def take(self, name: str, *shape: int) -> Tensor:
        """Take the tensor of this name and shape, in fp32; an axis of -1 may have any length.

        Raises ModelError if the tensor is missing, has another shape, is not of floats, or has
        NaN or infinite numbers.
        """
        if name not in self._left:
            raise ModelError(f"{self._where}: has no weight {name}: the model is not complete")
        tensor = self._left.pop(name)
        if len(shape) != tensor.ndim or any(
            asked not in (-1, found) for asked, found in zip(shape, tensor.shape, strict=True)
        ):
            raise ModelError(
                f"{self._where}: {name} is {list(tensor.shape)}, and the configuration asks for "
                f"{list(shape)}"
            )
        if not tensor.is_floating_point():
            raise ModelError(f"{self._where}: {name} is of {tensor.dtype}: not real numbers")
        tensor = tensor.detach().to(torch.float32, copy=True).contiguous()
        if not torch.isfinite(tensor).all():
            raise ModelError(f"{self._where}: {name} has NaN or infinite numbers: it is damaged")
        return tensor

    def take_any(self, name: str) -> Tensor:
        """Take a tensor of any shape, in fp32.

        Raises KeyError if the tensor is missing, and ModelError if it is not of floats, or has
        NaN or infinite numbers.
        """
        return self.take(name, *(-1 for _ in self._left[name].shape))

    def linear(self, name: str, outputs: int, inputs: int) -> tuple[Tensor, Tensor]:
        """Take the matrix [outputs, inputs] and the bias [outputs] of the linear layer `name`.

        Raises the errors of `take`.
        """
        return self.take(f"{name}.weight", outputs, inputs), self.bias(name, outputs)

    def norm(self, name: str, width: int) -> tuple[Tensor, Tensor]:
        """Take the gain [width] and the bias [width] of the LayerNorm `name`.

        Raises the errors of `take`.
        """
        return self.take(f"{name}.weight", width), self.bias(name, width)

    def bias(self, name: str, width: int) -> Tensor:
        """Take the bias [width] of the layer `name`; raises the errors of `take`.

        If the bias is missing and `biases` is False, zeros are returned.
        """
        if not self._biases and f"{name}.bias" not in self:
            return torch.zeros(width)
        return self.take(f"{name}.bias", width)

    def drop(self, names: Iterable[str]) -> None:
        """Drop the tensors `names`, which regard does not need; missing tensors are ignored."""
        for name in names:
            self._left.pop(name, None)

    def finish(self) -> None:
        """Raise ModelError if a tensor was neither taken nor dropped: regard has no such weight."""
        if self._left:
            first = sorted(self._left)[0]
            raise ModelError(
                f"{self._where}: has {first:.100}, and no such weight is known here: it is a model "
                "of another kind"
            )


def layers(
    weights: ForeignWeights,
    model: ModelRecipe,
    part: PartName,
    last: Callable[[str], str] = "{}.layer_norm".format,
) -> dict[str, Tensor]:
    """Take the weights of all layers, and return them under regard's names.

    Unless `model.norm` is "post", a LayerNorm ends the encoder and another ends the decoder; their
    weights are taken, too. `part` gives the foreign names of the parts of layers. `last` gives, for
    "encoder" or "decoder", the foreign name of the LayerNorm that ends this stack. Raises the
    errors of `ForeignWeights.take`.
    """
    found: dict[str, Tensor] = {}
    stacks = ("encoder", model.layers, model), ("decoder", model.decoder_layers, model.decoder)
    for stack, count, sizes in stacks:
        for i in range(count):
            for name, ours in parts_of_layer(stack, i, pre_norm=model.norm == "pre").items():
                theirs = part(stack, i, name)
                if name.endswith(".norm"):
                    found |= _pair(ours, weights.norm(theirs, model.d_model))
                else:
                    found |= _pair(ours, weights.linear(theirs, *_shape(name, sizes)))
        if model.norm != "post":
            found |= _pair(f"{stack}_norm", weights.norm(last(stack), model.d_model))
    return found


def parts_of_layer(stack: str, i: int, *, pre_norm: bool) -> dict[str, str]:
    """Map each part of a layer, named as in `PartName`, to the name of its module in regard."""
    kinds = ("self", "ff") if stack == "encoder" else ("self", "cross", "ff")
    names: dict[str, str] = {}
    for number, kind in enumerate(kinds, start=1):
        module = f"{stack}.{i}.{_MODULES[kind]}"
        norm = module if pre_norm else f"{stack}.{i}.add_norm_{number}"
        names[f"{kind}.norm"] = f"{norm}.norm"
        names |= {f"{kind}.{w}": f"{module}.W_{w}" for w in ("12" if kind == "ff" else "qkvo")}
    return names


def _shape(part: str, sizes: ModelRecipe) -> tuple[int, int]:
    """The number of outputs and the number of inputs of the linear layer `part`."""
    d, keys, values = sizes.d_model, sizes.heads * sizes.d_k, sizes.heads * sizes.d_v
    shapes = {"q": (keys, d), "k": (keys, d), "v": (values, d), "o": (d, values)}
    return (shapes | {"1": (sizes.d_ff, d), "2": (d, sizes.d_ff)})[part[-1]]


def _pair(name: str, pair: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
    return dict(zip((f"{name}.weight", f"{name}.bias"), pair, strict=True))
