"""Every window of every row starts from zeros, which training never changes: what a learned state is compared with."""

LEARNS = False
CARRIES = False
