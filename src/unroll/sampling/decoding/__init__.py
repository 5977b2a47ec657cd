"""From a distribution to a token. One file a control; a file supplies

    apply(logits_BV, value)   -> logits_BV, −inf where a token is ruled out

Controls apply in the order temperature, top-k, top-p, min-p; then one token a row is drawn.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.experiment.scheme import as_float

if TYPE_CHECKING:  # an option can be refused without torch
    from torch import Tensor

ORDER = ("temperature", "top-k", "top-p", "min-p")


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

    def distribution(self, logits_BV: Tensor) -> Tensor:
        """The probabilities that a token is drawn from, in float64."""
        import torch

        logits = logits_BV.double()
        if self.temperature == 0:
            best = logits.argmax(-1, keepdim=True)
            return torch.zeros_like(logits).scatter_(-1, best, 1.0)
        for control in ORDER:
            value = getattr(self, control.replace("-", "_"))
            if value is not None:
                logits = plugins.load("decoding", control).apply(logits, value)
        return torch.softmax(logits, -1)


def draw(probabilities_BV: Tensor, uniform_B: Tensor) -> Tensor:
    """The token in which each row's uniform number falls."""
    import torch

    cumulative = probabilities_BV.cumsum(-1)
    # Scaled by the last sum, which rounding may leave below 1, so that no token of probability 0 is ever drawn.
    place = uniform_B.unsqueeze(-1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, place, right=True).squeeze(-1)
