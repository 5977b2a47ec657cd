"""A run on disk, and what can be asked of it: perplexity, score, drift, memorisation."""
