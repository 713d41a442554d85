"""Tasks of our own: hills, rllab's robots, the cyclic MDP."""
