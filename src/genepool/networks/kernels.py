"""Matrix products, ELU and layer norm, rewritten because XLA's plain forms are slow on a CPU. The values are the same.

`row_product` has the product on the host of a batch of rows, each with a wide matrix of its own.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from genepool.xla import WIDE, is_tall


@jax.custom_vjp
def matmul(x: Array, w: Array) -> Array:
    """x @ w. Its gradient copies x.T before x.T @ g, for XLA's own transposed product is slow on a CPU."""
    return x @ w if x.ndim > 1 else _row_product(x, w)


@jax.custom_batching.custom_vmap
def _row_product(x: Array, w: Array) -> Array:
    """x @ w for one state. The bits are the same for one state and under vmap.

    Under vmap, wide matrices are multiplied one by one: XLA would spread a batch of them over threads whose cores are
    busy with other episodes.
    """
    return x @ w


@_row_product.def_vmap
def _row_products(count: int, batched: list[bool], x: Array, w: Array) -> tuple[Array, bool]:
    product = _product(w.shape[-2:])
    if all(batched) and (count == 1 or w[0].nbytes >= WIDE):
        return jnp.stack([product(x[k], w[k]) for k in range(count)]), True
    return jax.vmap(product, [0 if many else None for many in batched])(x, w), True


def _product(shape: tuple[int, ...]) -> Callable[[Array, Array], Array]:
    """x @ w, written so that XLA computes the same bits with and without vmap."""
    if shape[1] == 1:  # XLA would turn a product with one column into a sum
        return lambda x, w: (x @ jnp.concatenate([w, w], axis=1))[:1]
    return (lambda x, w: w.T @ x) if is_tall(shape) else jnp.matmul


def _matmul_forward(x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ w, (x, w)


def _matmul_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, w = saved
    if x.ndim == 1:
        return g @ w.T, jnp.outer(x, g)
    rows = x.reshape(-1, x.shape[-1])
    slopes = g.reshape(-1, g.shape[-1])
    if x.shape[-1] > g.shape[-1]:
        return g @ w.T, jax.lax.optimization_barrier(jax.lax.optimization_barrier(slopes.T) @ rows).T
    return g @ w.T, jax.lax.optimization_barrier(rows.T) @ slopes


matmul.defvjp(_matmul_forward, _matmul_backward)


@jax.custom_vjp
def elu(x: Array) -> Array:
    """x if it is positive, else exp(x) - 1. The gradient reuses the value, so that no overflow of exp spoils it."""
    return jnp.where(x > 0, x, jnp.exp(x) - 1.0)


def _elu_forward(x: Array) -> tuple[Array, Array]:
    y = elu(x)
    return y, y


def _elu_backward(y: Array, g: Array) -> tuple[Array]:
    return (g * jnp.minimum(y + 1.0, 1.0),)


elu.defvjp(_elu_forward, _elu_backward)


def leaky_relu(x: Array) -> Array:
    """x if it is positive, else 0.01 x."""
    return jnp.maximum(x, 0.01 * x)


@jax.custom_vjp
def layer_norm(y: Array, gain: Array, shift: Array) -> Array:
    """gain z + shift, where z = (y - mean) / (std + 1e-6), with the unbiased std over the last axis."""
    return _layer_norm_forward(y, gain, shift)[0]


def _layer_norm_forward(y: Array, gain: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    n = y.shape[-1]
    # XLA does not vectorise sums along rows, so a batch uses products with ones. A single state does not: a product
    # adds in an order that depends on the number of rows, so under vmap on the other states of the batch.
    row_sum: Callable[[Array], Array] = (lambda x: x @ jnp.ones(n)) if y.ndim > 1 else jnp.sum
    centred = y - (row_sum(y) / n)[..., None]
    std = jnp.sqrt(jnp.maximum(row_sum(centred**2) / (n - 1), 1e-20))[..., None]
    z = centred * (1.0 / (std + 1e-6))
    return gain * z + shift, (z, std, gain)


def _layer_norm_backward(saved: tuple[Array, ...], g: Array) -> tuple[Array, Array, Array]:
    z, std, gain = saved
    n = z.shape[-1]
    g_z = g * z
    mean = (g @ gain / n)[..., None]
    slope = (g_z @ gain / (n - 1))[..., None]
    return (gain * g - mean) * (1.0 / (std + 1e-6)) - z * (slope / std), _column_sums(g_z), _column_sums(g)


def _column_sums(x: Array) -> Array:
    return jnp.sum(x.reshape(-1, x.shape[-1]), axis=0)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)
