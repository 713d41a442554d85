"""Genetic algorithms: populations, and the operators that breed them."""
