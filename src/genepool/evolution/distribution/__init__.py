"""Search distributions over flat vectors: CEM, AES-RL's strategies, OpenAI-ES, evosax's strategies."""
