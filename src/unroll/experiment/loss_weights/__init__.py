"""Which positions of a window carry a loss, and how much. One file a weighting; a file supplies

scored(k2)        how many trailing positions carry a loss unless k3 says otherwise
weights(k2, k3)   the weights of the last k3 positions of k2, first to last, as the paper writes them
"""
