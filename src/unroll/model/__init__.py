"""The model in plain terms: cells, initial values, optimisers, conditioning, and the interface to the engines."""
