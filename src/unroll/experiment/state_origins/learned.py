"""Every window of every row starts from one state, trained with the weights (Algorithms 1 and 2)."""

LEARNS = True
CARRIES = False
