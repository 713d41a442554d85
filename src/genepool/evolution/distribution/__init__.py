"""Search distributions over flat vectors: CEM, AES-RL's, OpenAI-ES, evosax's."""
