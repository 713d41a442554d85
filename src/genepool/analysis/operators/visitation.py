"""Where policies spend their time: densities of the states that they visit, in a plane, and their divergences.

PDERL's Figures 1, 2, 6, 8 and 9 fit a Gaussian kernel density to the first two dimensions of the state; GPO's Figure 3b
projects all of them by t-SNE. Neither paper gives a bandwidth, and PDERL does not give the direction of its KL
divergence. Here it is KL(parent || child) in nats, and every density has Scott's bandwidth, n^(-1/6) of its own spread.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from genepool.errors import UserError

GRID = 64, 200  # points, at least and at most, along each side of the plane that an integral is taken over
FLOOR = 1e-12  # the least share of a policy's time in a cell of the grid: it bounds a divergence
JITTER = 1e-3  # of the spread, added to states: a policy that stands still has a density too


def first_two(states: np.ndarray) -> np.ndarray:
    """The first two dimensions of the states, PDERL's plane."""
    if states.shape[1] < 2:
        raise UserError("the task's states are single numbers: there is no plane to draw them in")
    return np.asarray(states[:, :2], float)


def density(points: np.ndarray, spread: np.ndarray) -> Any:
    """The kernel density of points in the plane, [n, 2]. `spread` [2] is the scale of what it is compared with."""
    try:
        from scipy.stats import gaussian_kde
    except ImportError:
        raise UserError("densities need SciPy: pip install 'genepool[analysis]'") from None
    noise = np.random.default_rng(0).standard_normal(points.shape)
    return gaussian_kde((points + JITTER * np.where(spread > 0, spread, 1.0) * noise).T, bw_method="scott")


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p || q) = sum p log(p / q) in nats, of the densities of two sets of points in the plane, [n, 2] each.

    The sum goes over a grid that covers p: elsewhere the terms are 0.
    """
    spread = np.concatenate([p, q]).std(axis=0)
    of_p = density(p, spread)
    of_q = density(q, spread)
    width = np.sqrt(np.diag(of_p.covariance))  # of its kernels, which the grid must not miss
    low = p.min(axis=0) - 4.0 * width
    high = p.max(axis=0) + 4.0 * width
    counts = np.clip(np.ceil((high - low) / width), *GRID).astype(int)
    x, y = (np.linspace(*side) for side in zip(low, high, counts, strict=True))
    cells = np.stack(np.meshgrid(x, y)).reshape(2, -1)
    area = (x[1] - x[0]) * (y[1] - y[0])
    share_p = of_p(cells) * area
    share_q = of_q(cells) * area
    ratio = np.log(np.maximum(share_p, FLOOR) / np.maximum(share_q, FLOOR))
    return float(np.sum(share_p * ratio) / np.sum(share_p))


def window(points: Sequence[np.ndarray], size: int = 80) -> tuple[np.ndarray, np.ndarray]:
    """A grid, x and y [size, size], over the part of the plane that holds almost all points."""
    pooled = np.concatenate(points)
    low, high = np.quantile(pooled, [0.005, 0.995], axis=0)
    margin = 0.2 * np.where(high > low, high - low, 1.0)
    x, y = (np.linspace(*side, size) for side in zip(low - margin, high + margin, strict=True))
    return tuple(np.meshgrid(x, y))


def on_window(points: np.ndarray, grid: tuple[np.ndarray, np.ndarray], spread: np.ndarray) -> np.ndarray:
    """The density of the points over the grid."""
    x, y = grid
    return density(points, spread)(np.stack([x.ravel(), y.ravel()])).reshape(x.shape)


def embed(
    states: dict[str, np.ndarray], method: Literal["tsne", "pca"] = "tsne", seed: int = 0, most: int = 500
) -> dict[str, np.ndarray]:
    """All dimensions of the policies' states as points in one plane, up to `most` of each policy, evenly spaced.

    "tsne" keeps neighbours together (GPO's Figure 3b), "pca" shows the two directions in which the states differ most.
    """
    thin = {name: np.asarray(rows[:: -(-len(rows) // most)], float) for name, rows in states.items()}
    pooled = np.concatenate(list(thin.values()))
    scale = pooled.std(axis=0)
    scaled = (pooled - pooled.mean(axis=0)) / np.where(scale > 0, scale, 1.0)
    points = _tsne(scaled, seed) if method == "tsne" else scaled @ np.linalg.svd(scaled, full_matrices=False)[2][:2].T
    ends = np.cumsum([len(rows) for rows in thin.values()])[:-1]
    return dict(zip(thin, np.split(points, ends), strict=True))


def _tsne(rows: np.ndarray, seed: int) -> np.ndarray:
    try:
        from sklearn.manifold import TSNE
    except ImportError:
        raise UserError("t-SNE needs scikit-learn: pip install 'genepool[analysis]', or use --embedding pca") from None
    perplexity = min(30.0, (len(rows) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(rows.astype(np.float32))
