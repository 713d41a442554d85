"""Evolution: selection, variation operators and evolvers. Knows nothing of learning: a critic is a callable it is handed."""
