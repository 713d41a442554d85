"""Figures and tables of what runs have recorded."""
