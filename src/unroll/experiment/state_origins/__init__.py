"""Where a window's first state comes from. One file an origin; a file supplies

    LEARNS    the first state is a parameter of the model, trained with the weights
    CARRIES   the first state is where the row's window before left off

With neither, every window would start from zeros.
"""
