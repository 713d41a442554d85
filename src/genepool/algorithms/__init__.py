"""The couplings as ask, tell and learn, and the presets that choose their parts."""
