"""Genetic algorithms: populations, selection, crossover and mutation."""
