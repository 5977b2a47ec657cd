"""How it is computed fast: a room for each backend, and the one seam in front of them."""
