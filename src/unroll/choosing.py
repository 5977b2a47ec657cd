"""One token for each of many rows, on the CPU, each row with its own controls and its own random number.

It chooses as `decoding` does, in NumPy: there, a call costs a fraction of what it costs in torch. Sums run along a row
from its first symbol to its last, so that no row's bits depend on another.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unroll import randomness
from unroll.decoding import Decoding

BLOCK = 256  # random numbers made at a time


class Uniforms:
    """The random numbers of one stream: the n-th is a function of the stream's seed and n."""

    def __init__(self, seed: int) -> None:
        self._seed, self._made = seed, 0
        self._left: Iterator[float] = iter(())

    def __next__(self) -> float:
        for number in self._left:
            return number
        self._left = iter(randomness.first_uniforms(self._seed, "sample", self._made, BLOCK).tolist())
        self._made += BLOCK
        return next(self._left)


def choose(
    logits_BV: NDArray[np.float64], decodings: Sequence[Decoding], uniform_B: Sequence[float]
) -> tuple[list[int], list[float]]:
    """A token a row, and its log-probability under the model itself, before temperature and truncation."""
    shifted_BV = logits_BV - logits_BV.max(-1, keepdims=True)
    weights_BV = np.exp(shifted_BV)
    sums_B = weights_BV.cumsum(-1)[:, -1]
    ids_B = np.empty(len(logits_BV), np.int64)
    kinds = set(decodings)
    for decoding in kinds:
        rows = [b for b, other in enumerate(decodings) if other == decoding] if len(kinds) > 1 else slice(None)
        ids_B[rows] = _choose_alike(shifted_BV[rows], weights_BV[rows], decoding, np.asarray(uniform_B)[rows])
    logprobs_B = shifted_BV[np.arange(len(ids_B)), ids_B] - np.log(sums_B)
    return ids_B.tolist(), logprobs_B.tolist()


def _choose_alike(
    shifted_BV: NDArray[np.float64], weights_BV: NDArray[np.float64], decoding: Decoding, uniform_B: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Rows that share their controls; `weights` are e to the shifted logits."""
    if decoding.temperature == 0:
        return np.asarray(shifted_BV.argmax(-1))
    if decoding.truncates:
        import torch

        weights_BV = decoding.distribution(torch.from_numpy(shifted_BV)).numpy()
    elif decoding.temperature != 1:
        weights_BV = np.exp(shifted_BV / decoding.temperature)
    cumulative_BV = weights_BV.cumsum(-1)
    # Scaled by the last sum, so that no token of probability 0 is ever drawn.
    place_B = uniform_B * cumulative_BV[:, -1]
    return np.asarray((cumulative_BV <= place_B[:, None]).sum(-1))
