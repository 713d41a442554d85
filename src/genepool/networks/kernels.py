"""What XLA does slowly on a CPU, written otherwise: products of matrices, ELU, layer norm. The values are the plain ones.

A product of rows with wide matrices of their own, on the host, is in `row_product`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array

from genepool.xla import WIDE, is_tall


@jax.custom_vjp
def matmul(x: Array, w: Array) -> Array:
    """x @ w. XLA's x.T @ g is slow on a CPU, so the gradient copies x.T first: about 2 % off a DDPG update."""
    return x @ w if x.ndim > 1 else _row_product(x, w)


@jax.custom_batching.custom_vmap
def _row_product(x: Array, w: Array) -> Array:
    """x @ w of one state. Of many, each with a wide matrix of its own, one by one: XLA would hand out a batch of such products
    to threads whose cores are busy with other players. The bits are the same, of one and of many.
    """
    return x @ w


@_row_product.def_vmap
def _row_products(count: int, batched: list[bool], x: Array, w: Array) -> tuple[Array, bool]:
    product = _product(w.shape[-2:])
    if all(batched) and (count == 1 or w[0].nbytes >= WIDE):
        return jnp.stack([product(x[k], w[k]) for k in range(count)]), True
    return jax.vmap(product, [0 if many else None for many in batched])(x, w), True


def _product(shape: tuple[int, int]) -> Callable[[Array, Array], Array]:
    """x @ w, written so that XLA makes the same of one and of many."""
    if shape[1] == 1:  # it would make a sum of it
        return lambda x, w: (x @ jnp.concatenate([w, w], axis=1))[:1]
    return (lambda x, w: w.T @ x) if is_tall(shape) else jnp.matmul


def _matmul_backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, w = saved
    if x.ndim == 1:
        return g @ w.T, jnp.outer(x, g)
    rows, slopes = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    if x.shape[-1] > g.shape[-1]:
        return g @ w.T, jax.lax.optimization_barrier(jax.lax.optimization_barrier(slopes.T) @ rows).T
    return g @ w.T, jax.lax.optimization_barrier(rows.T) @ slopes


matmul.defvjp(lambda x, w: (x @ w, (x, w)), _matmul_backward)


@jax.custom_vjp
def elu(x: Array) -> Array:
    """x where it is positive, else exp(x) - 1; the gradient reuses the exponential, so one that overflows does no harm."""
    return jnp.where(x > 0, x, jnp.exp(x) - 1.0)


def _elu_forward(x: Array) -> tuple[Array, Array]:
    y = elu(x)
    return y, y


elu.defvjp(_elu_forward, lambda y, g: (g * jnp.minimum(y + 1.0, 1.0),))


def leaky_relu(x: Array) -> Array:
    """x where it is positive, else 0.01 x."""
    return jnp.maximum(x, 0.01 * x)


@jax.custom_vjp
def layer_norm(y: Array, gain: Array, shift: Array) -> Array:
    """gain z + shift, where z = (y - mean) / (std + 1e-6), with the unbiased std over the last axis."""
    return _layer_norm_forward(y, gain, shift)[0]


def _layer_norm_forward(y: Array, gain: Array, shift: Array) -> tuple[Array, tuple[Array, ...]]:
    n = y.shape[-1]
    # XLA does not vectorise sums along rows, so a batch's are products with ones. Not those of one state: the order of
    # a product's additions depends on how many rows there are, so under vmap on who is played beside.
    along = (lambda x: x @ jnp.ones(n)) if y.ndim > 1 else jnp.sum
    centred = y - (along(y) / n)[..., None]
    std = jnp.sqrt(jnp.maximum(along(centred**2) / (n - 1), 1e-20))[..., None]
    z = centred * (1.0 / (std + 1e-6))
    return gain * z + shift, (z, std, gain)


def _layer_norm_backward(saved: tuple[Array, ...], g: Array) -> tuple[Array, Array, Array]:
    z, std, gain = saved
    n, down = z.shape[-1], lambda x: jnp.sum(x.reshape(-1, x.shape[-1]), axis=0)
    g_z = g * z
    mean, slope = (g @ gain / n)[..., None], (g_z @ gain / (n - 1))[..., None]
    return (gain * g - mean) * (1.0 / (std + 1e-6)) - z * (slope / std), down(g_z), down(g)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)
