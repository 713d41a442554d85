"""Networks as callable pytrees with array leaves only. They take one state or a batch of them."""

from genepool.networks.actors import Actor, SquashedGaussian, deterministic
from genepool.networks.critics import BranchedCritic, QNetwork, VNetwork, shrink_output
from genepool.networks.kernels import elu, layer_norm, leaky_relu, matmul
from genepool.networks.layers import (
    ACTIVATIONS,
    HOST_ACTIVATIONS,
    Activation,
    Initial,
    Linear,
    NormalisedLinear,
    sizes_of,
)

__all__ = [
    "ACTIVATIONS",
    "HOST_ACTIVATIONS",
    "Activation",
    "Actor",
    "BranchedCritic",
    "Initial",
    "Linear",
    "NormalisedLinear",
    "QNetwork",
    "SquashedGaussian",
    "VNetwork",
    "deterministic",
    "elu",
    "layer_norm",
    "leaky_relu",
    "matmul",
    "shrink_output",
    "sizes_of",
]
