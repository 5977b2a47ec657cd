"""The training loop and what guards it: steps, fleets, evaluations, saving, signals, early refusals."""
