"""Here the time of a run is estimated (`estimate.measure`) or simulated; the entrance is `simulate.simulate`."""
