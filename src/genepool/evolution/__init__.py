"""Evolution: selection, variation operators and evolvers. It imports no learner: a critic is an argument."""
