"""From a distribution to a token. One file a control; a file supplies

    apply(logits_BV, value)   -> logits_BV, −inf where a token is ruled out

Controls apply in the order temperature, top-k, top-p, min-p; then one token a row is drawn.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unroll.base import plugins
from unroll.experiment.decoding import Decoding

ORDER = ("temperature", "top-k", "top-p", "min-p")


def distribution(decoding: Decoding, logits_BV: Tensor) -> Tensor:
    """The probabilities that a token is drawn from, in float64."""
    logits = logits_BV.double()
    if decoding.temperature == 0:
        best = logits.argmax(-1, keepdim=True)
        return torch.zeros_like(logits).scatter_(-1, best, 1.0)
    for control in ORDER:
        value = getattr(decoding, control.replace("-", "_"))
        if value is not None:
            logits = plugins.load("decoding", control).apply(logits, value)
    return torch.softmax(logits, -1)
