"""Candidates tried by the workers of a Ray cluster."""
