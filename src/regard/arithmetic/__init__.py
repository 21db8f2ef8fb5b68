"""Doors for speed: one function for an equation of the paper, by whatever suits the device.

`attention`, `residual` (Add & Norm), `dropout`, `cross_entropy`, `linear`, `int8` serve training,
the first two decoding too. The obvious version of each stands in `regard.attention`,
`regard.layers`, `regard.loss` or PyTorch, and the tests hold the two equal, values and gradients.
`packed` and `cache` serve decoding, `exact` gives a sentence the same bits whatever is beside it,
`compiled` serves the step on a GPU. `one_core` says where there are loops, `threads` runs work side
by side, `device` tells CPU from GPU. No module of the model asks what it runs on.
"""
