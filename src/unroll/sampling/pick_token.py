"""One token for each of many rows, on the CPU, each row with its own controls and its own random number.

It chooses as `decoding` does, in NumPy: there, a call costs a fraction of what it costs in torch. Sums run along a row
from its first symbol to its last, so that no row's bits depend on another.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unroll.base import randomness
from unroll.experiment.decoding import Decoding

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
    shifted_BV = logits_BV - np.maximum.reduce(logits_BV, axis=-1, keepdims=True)
    cumulative_BV = np.add.accumulate(np.exp(shifted_BV), axis=-1)
    if len(logits_BV) == 1:
        token = _choose(shifted_BV, cumulative_BV, decodings[0], uniform_B[0]).item()
        return [token], [shifted_BV[0, token].item() - _log(cumulative_BV[0, -1].item())]
    ids_B, kinds = np.empty(len(logits_BV), np.int64), set(decodings)
    for decoding in kinds:
        rows = [b for b, other in enumerate(decodings) if other == decoding] if len(kinds) > 1 else slice(None)
        uniform_b1 = np.asarray(uniform_B)[rows, None]
        ids_B[rows] = _choose(shifted_BV[rows], cumulative_BV[rows], decoding, uniform_b1)
    shifted_B = shifted_BV[np.arange(len(ids_B)), ids_B]
    logprobs = zip(shifted_B.tolist(), cumulative_BV[:, -1].tolist(), strict=True)
    return ids_B.tolist(), [own - _log(total) for own, total in logprobs]


def _choose(
    shifted_BV: NDArray[np.float64],
    cumulative_BV: NDArray[np.float64],
    decoding: Decoding,
    uniform: float | NDArray[np.float64],
) -> NDArray[np.int64]:
    """Rows that share their controls; `cumulative` are the sums of e to the shifted logits."""
    if decoding.temperature == 0:
        return np.asarray(shifted_BV.argmax(-1))
    if decoding.truncates:
        import torch

        from unroll.sampling.decoding import distribution

        p_BV = distribution(decoding, torch.from_numpy(shifted_BV))
        cumulative_BV = np.add.accumulate(p_BV.numpy(), axis=-1)
    elif decoding.temperature != 1:
        cumulative_BV = np.add.accumulate(np.exp(shifted_BV / decoding.temperature), axis=-1)
    # Scaled by the last sum, so that no token of probability 0 is ever drawn.
    below = cumulative_BV <= uniform * cumulative_BV[:, -1:]
    return np.asarray(np.add.reduce(below, axis=-1, dtype=np.int64))


def _log(total: float) -> float:
    """The logarithm of a sum that is at least 1; NaN if it holds no numbers."""
    return math.log(total) if total > 0 else math.nan
