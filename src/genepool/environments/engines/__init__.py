"""Engines: who steps an environment."""
