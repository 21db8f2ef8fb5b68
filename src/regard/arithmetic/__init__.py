"""The paper's equations, implemented by whatever is fastest on a device.

Each implements `regard.equations.Arithmetic`: `plain` by the definitions; `cuda` on a GPU; `cpu` in
training on a CPU; `inference` on a CPU without gradients; `one_core` by loops (`loops`), for a
thread with a core to itself. `products`, `int8` and `layouts` are the ways to multiply a linear
layer. `choose` selects one; tests hold every one equal to `plain`, values and gradients.
"""
