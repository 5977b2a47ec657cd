"""Which positions of a window carry a loss, and how much. One file a weighting; a file supplies

scored(k2)        how many trailing positions carry a loss unless k3 says otherwise
weights(k2, k3)   the weights of the last k3 positions of k2, first to last, as the paper writes them

What every weighting keeps to: `scored(k2)` is a whole number from 1 to k2; `weights(k2, k3)` are k3 floats for every k3
from 1 to k2, finite, none below 0, and not all 0. `normalise` divides them by their sum, so that one scored position
alone is single-loss.
"""
