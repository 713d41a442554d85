"""The product of a batch of rows, each with a wide matrix of its own, compiled by Numba.

Rows of a matrix that are multiplied by zero are not read. Import this module only where wide actors play: importing
Numba and compiling the product are slow.
"""

import numba
import numpy as np

SIGNATURE = "void(float32[:, :], float32[:, :, ::1], float32[:, ::1], float32[:, ::1])"


@numba.njit(SIGNATURE, nogil=True)
def affine(x: np.ndarray, w: np.ndarray, b: np.ndarray, y: np.ndarray) -> None:
    """y_k = x_k W_k + b_k for every k; w: [n, in, out].

    Reading a wide matrix takes longer than multiplying by it, and half of a ReLU layer is zero. So only the rows of W
    whose x is not zero are read, four at a time. No operation is fused or reordered: the bits are the same on every
    processor.
    """
    n, fan_in, fan_out = w.shape
    nonzero = np.empty(fan_in, np.intp)
    for k in range(n):
        count = 0
        for i in range(fan_in):  # without a branch, for the processor cannot predict which x are zero
            nonzero[count] = i
            count += x[k, i] != 0.0
        y[k] = b[k]
        fours = count - count % 4
        for at in range(0, fours, 4):
            i0 = nonzero[at]
            i1 = nonzero[at + 1]
            i2 = nonzero[at + 2]
            i3 = nonzero[at + 3]
            x0 = x[k, i0]
            x1 = x[k, i1]
            x2 = x[k, i2]
            x3 = x[k, i3]
            w0 = w[k, i0]
            w1 = w[k, i1]
            w2 = w[k, i2]
            w3 = w[k, i3]
            for j in range(fan_out):
                y[k, j] += (x0 * w0[j] + x1 * w1[j]) + (x2 * w2[j] + x3 * w3[j])
        for at in range(fours, count):
            x0 = x[k, nonzero[at]]
            w0 = w[k, nonzero[at]]
            for j in range(fan_out):
                y[k, j] += x0 * w0[j]
