"""The training loop and what guards it."""
