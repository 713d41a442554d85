"""Films of champions."""
