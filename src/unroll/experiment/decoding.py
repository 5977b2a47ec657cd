"""What may be asked of the draw of a token: temperature, top-k, top-p, min-p. `sampling/decoding` does it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from unroll.base.errors import ConfigurationError
from unroll.experiment.scheme import as_float


@dataclass(frozen=True)
class Decoding:
    """How a token is chosen. Temperature 0 is argmax.

    >>> Decoding(temperature=0.5, top_k=10)
    Decoding(temperature=0.5, top_k=10, top_p=None, min_p=None)
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        wrong = []
        if not 0 <= as_float(self.temperature) < math.inf:
            wrong.append(f"temperature must be a number of at least 0 (0 is argmax). Got {self.temperature}.")
        if self.top_k is not None and self.top_k < 1:
            wrong.append(f"top-k must be at least 1. Got {self.top_k}.")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            wrong.append(f"top-p must be above 0 and at most 1. Got {self.top_p}.")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            wrong.append(f"min-p must be between 0 and 1. Got {self.min_p}.")
        if wrong:
            raise ConfigurationError(*wrong)

    @property
    def truncates(self) -> bool:
        """Whether any token may be ruled out, other than by argmax."""
        return self.temperature > 0 and (self.top_k, self.top_p, self.min_p) != (None, None, None)
