"""Hills to run over, as rllab makes them (its pull request 121) for the hilly tasks of GPO: a field of heights.

rllab draws the field with matplotlib, axes and all, and MuJoCo reads the picture. Here it is an array, without the walls and
pits that margins and labels make, flat where the robot truly starts, and a ring: who leaves it on one side is back on the other.
"""

from functools import lru_cache

import numpy as np

SIDE = 71.4  # metres, of the square that the robot starts in the middle of
CELLS = 400  # along a side
UNITS = 40.0  # along a side, in which hills are drawn: 1.785 m each
WANTED = 500  # hills; so many rows of them as fit make 23 x 23
FLAT, EDGE = 2.0, 1.8  # metres: nothing rises so near to the start, and from there on hills grow to their height


def hills(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The tops, [529, 2] in units, on a grid from which each is moved by N(0, 0.4 I), and the hills' variances, U[0.4, 0.8]."""
    rng = np.random.default_rng(seed)
    line = np.arange(-UNITS / 2, UNITS / 2, UNITS / np.sqrt(WANTED))
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    variance = UNITS**2 / (8 * WANTED)
    return rng.normal(grid, np.sqrt(variance)), rng.uniform(variance, 2 * variance, len(grid))


@lru_cache(maxsize=8)
def terrain(seed: int) -> np.ndarray:
    """Heights from 0 to 1, [y, x]. A hill is a normal density, and of all hills the highest counts.

    The field is 0, its lowest, around the start. Its last row and column are its first.
    """
    tops, variances = hills(seed)
    line = np.linspace(-UNITS / 2, UNITS / 2, CELLS)
    away = (line - tops[:, :, None] + UNITS / 2) % UNITS - UNITS / 2  # [hill, x or y, cell], round the ring
    x, y = np.exp(-(away**2) / (2 * variances[:, None, None])).transpose(1, 0, 2)
    heights = np.zeros((CELLS, CELLS))
    for k, variance in enumerate(variances):
        np.maximum(heights, np.outer(y[k] / (2 * np.pi * variance), x[k]), out=heights)
    metres = np.abs(line) * SIDE / UNITS
    risen = np.clip((np.maximum(metres[:, None], metres) - FLAT) / EDGE, 0.0, 1.0)
    heights *= risen * risen * (3 - 2 * risen)
    return (heights / heights.max()).astype(np.float32)
