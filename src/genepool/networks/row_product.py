"""Rows multiplied by wide matrices of their own, compiled by Numba: what is multiplied by zero is not even read.

Imported where wide actors play and not before, for Numba takes half a second to import and as long again to compile this.
"""

import numba
import numpy as np

KIND = "void(float32[:, :], float32[:, :, ::1], float32[:, ::1], float32[:, ::1])"


@numba.njit(KIND, nogil=True)
def affine(x: np.ndarray, w: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    """y_k = x_k W_k + b_k for every k; w: [n, in, out].

    To fetch a wide matrix takes longer than to multiply by it, and half of a ReLU layer is silent: only the rows of W whose
    x is not zero are fetched, four at a time. Nothing is fused or reordered, so the bits are the same on every processor.
    """
    n, fan_in, fan_out = w.shape
    heard = np.empty(fan_in, np.intp)
    for k in range(n):
        count = 0
        for i in range(fan_in):  # without a branch: which units are silent cannot be foretold
            heard[count] = i
            count += x[k, i] != 0.0
        y[k] = b[k]
        fours = count - count % 4
        for at in range(0, fours, 4):
            i0, i1, i2, i3 = heard[at], heard[at + 1], heard[at + 2], heard[at + 3]
            x0, x1, x2, x3 = x[k, i0], x[k, i1], x[k, i2], x[k, i3]
            w0, w1, w2, w3 = w[k, i0], w[k, i1], w[k, i2], w[k, i3]
            for j in range(fan_out):
                y[k, j] += (x0 * w0[j] + x1 * w1[j]) + (x2 * w2[j] + x3 * w3[j])
        for at in range(fours, count):
            x0, w0 = x[k, heard[at]], w[k, heard[at]]
            for j in range(fan_out):
                y[k, j] += x0 * w0[j]
