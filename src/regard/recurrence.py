"""The recurrent layers of §1 and Table 1: an LSTM (Hochreiter and Schmidhuber, 1997).

"Recurrent models typically factor computation along the symbol positions": a state h and a cell c
pass from one position to the next, so a row of n positions is computed in n dependent steps.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def lstm_cell(
    gates: Float[Tensor, "*batch four_widths"], cell: Float[Tensor, "*batch width"]
) -> tuple[Float[Tensor, "*batch width"], Float[Tensor, "*batch width"]]:
    """Compute one position: c' = f c + i z and h = o tanh(c'); return h and c'.

    `gates` holds i, f, z and o, in this order, before sigmoid and tanh, in the precision of h. The
    cell is in fp32 or better, because it adds up small numbers over many positions.
    """
    i, f, z, o = gates.to(cell.dtype).chunk(4, dim=-1)
    cell = f.sigmoid() * cell + i.sigmoid() * z.tanh()
    return (o.sigmoid() * cell.tanh()).to(gates.dtype), cell


def first_state(
    like: Float[Tensor, "..."], *shape: int
) -> tuple[Float[Tensor, "..."], Float[Tensor, "..."]]:
    """Return h and c before the first position: zeros of the given shape.

    h has the dtype of `like`; c is in fp32 or better.
    """
    precise = torch.promote_types(like.dtype, torch.float32)
    return like.new_zeros(shape), like.new_zeros(shape, dtype=precise)
