"""What crossover and mutation make of a population."""
