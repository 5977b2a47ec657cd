"""What is computed, said once and plainly: cells, initial values, optimisers, conditioning, the model."""
