"""Doors for speed: one function for an equation of the paper, by whatever suits the device.

`attention`, `residual` (Add & Norm), `dropout`, `cross_entropy` and `linear` serve training; the
obvious version of each stands in `regard.attention`, `regard.layers`, `regard.loss` or PyTorch, and
the tests hold the two equal, values and gradients. `packed` and `cache` serve decoding, `compiled`
the step on a GPU, `one_core` says where there are loops for it. No module of the model asks what it
runs on.
"""
