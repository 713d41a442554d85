"""Time: how long a run takes, and how it would scale."""
