"""Runs: training from beginning to end, the folder it is kept in, and the policies that come of it."""
