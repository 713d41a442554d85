"""What the speed benchmark measures: HalfCheetah-v5 at PDERL's settings, each figure in turn with its limit.

A part is a function of the number of threads, and of whether a quick look is enough. It returns rows with every round.
"""

from benchmarks.parts.acting import acting, cluster, population
from benchmarks.parts.generations import generation
from benchmarks.parts.gpo import iteration
from benchmarks.parts.system import memory, startup
from benchmarks.parts.updates import distillation, teaching, update

PARTS = {
    part.__name__: part
    for part in (update, acting, population, iteration, distillation, teaching, generation, cluster, memory, startup)
}
