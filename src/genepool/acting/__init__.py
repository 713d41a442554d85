"""How actors act: many as one batch, and whole episodes."""
