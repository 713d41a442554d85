"""How fast genepool is, beside what the machine could do: `python -m benchmarks.speed`."""
