"""Where a window's first state comes from. One file an origin; a file supplies

    LEARNS    the first state is a parameter of the model, trained with the weights
    CARRIES   the first state is where the row's window before left off

With neither, every window starts from zeros. Each is True or False, and not both are True. Where LEARNS is True, a
gradient reaches the model's first state, and else none does; where CARRIES is True, the window before matters, but for
rows that are reset to zeros, and else it does not.
"""
