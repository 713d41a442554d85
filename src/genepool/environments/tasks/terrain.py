"""The hills of GPO's tasks, made as in rllab (its pull request 121): a field of heights.

rllab draws the field with matplotlib, with axes and labels, and MuJoCo reads the picture. Here it is an array. It has
no walls and pits from margins and labels, it is flat where the robot starts, and it is a ring in both directions.
"""

from functools import lru_cache

import numpy as np

SIDE = 71.4  # metres: the side of the square; the robot starts in its middle
CELLS = 400  # heights along a side
UNITS = 40.0  # the side in the units in which hills are drawn; a unit is 1.785 m
WANTED = 500  # hills; the whole rows that fit are 23 x 23
FLAT = 2.0  # metres: the ground is flat up to this distance from the start
EDGE = 1.8  # metres, over which hills grow to their full height


def hills(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """The tops, [529, 2] in units, on a grid with noise N(0, 0.4 I), and the variances of the hills, U[0.4, 0.8]."""
    rng = np.random.default_rng(seed)
    line = np.arange(-UNITS / 2, UNITS / 2, UNITS / np.sqrt(WANTED))
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    variance = UNITS**2 / (8 * WANTED)
    return rng.normal(grid, np.sqrt(variance)), rng.uniform(variance, 2 * variance, len(grid))


@lru_cache(maxsize=8)
def terrain(seed: int) -> np.ndarray:
    """Heights from 0 to 1, [y, x]. A hill is a normal density; the highest hill counts at each point.

    The field is 0 around the start. Its last row and column equal its first.
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
