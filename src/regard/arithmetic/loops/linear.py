"""The gradients of a bias and of max(0, x), for linear layers."""

from numpy import float32 as f32

from regard.arithmetic.loops.numbers import Numbers, loop_for, read


@loop_for("void({n}[:, ::1], float32[::1])")
def column_sums(x: Numbers, sums: Numbers) -> None:
    """Add each row of x to the sums."""
    for r in range(len(x)):
        row = x[r]
        for j in range(len(row)):
            sums[j] += read(row[j])


@loop_for("void({n}[:, ::1], {n}[:, ::1], {n}[:, ::1], float32[::1])")
def relu_backward(gradient: Numbers, y: Numbers, out: Numbers, sums: Numbers) -> None:
    """With y = max(0, x), write the gradient of x to `out`; add each row of `out` to `sums`.

    Where y is 0, the gradient of x is 0; elsewhere, it is `gradient`, the gradient of y.
    """
    for r in range(len(y)):
        g_row, y_row, out_row = gradient[r], y[r], out[r]
        for j in range(len(g_row)):
            out_row[j] = 0 if read(y_row[j]) <= f32(0) else g_row[j]
            sums[j] += read(out_row[j])
