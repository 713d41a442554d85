"""Engines: they step the environments of a task."""
