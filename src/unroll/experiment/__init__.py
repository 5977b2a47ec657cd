"""What is asked for, as frozen values: the scheme (read it first), the experiment, grids. It needs no torch."""
