"""Gradient learners. Knows nothing of evolution: a learner is given transitions and an actor to begin with."""
