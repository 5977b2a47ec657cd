"""A row's window starts from the state that its last window had after k1 inputs (Algorithm 3); zeros after a reset."""

LEARNS = False
CARRIES = True
