"""What happens to gradients before an optimiser sees them, and to weights beside it: clipping by norm, weight decay.

Both are the same for every optimiser. They concern all parameters of a run, biases, peepholes and first states too, as
torch's own do. A vocabulary's padding has gradients and weights of 0, and so keeps them.

Shapes: M runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

EPSILON = 1e-6  # of torch.nn.utils.clip_grad_norm_

Shapes = Mapping[str, tuple[int, ...]]  # of one run's parameters, without padding


class Decay(NamedTuple):
    """How weights decay: each run's share of the learning rate, and where it acts."""

    share_M: Tensor
    decoupled: bool


class NormLimit(NamedTuple):
    """The most that the norm of all gradients of each run may be, and the shapes that these have in each run."""

    limit_M: Tensor
    shapes: Sequence[Shapes]


def scale_M(gradients: Mapping[str, Tensor], limit: NormLimit) -> Tensor:
    """The number that each run's gradients are multiplied by, at most 1, so that their norm keeps to the limit: [M]."""
    norms = []
    for m, shapes in enumerate(limit.shapes):
        # Without padding: how a sum is ordered depends on its length, and a run must not depend on its fleet.
        own = (gradients[name][m][tuple(slice(n) for n in shape)] for name, shape in shapes.items())
        norms.append(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g.contiguous()) for g in own])))
    return scale_of(torch.stack(norms), limit.limit_M)


def norm_M(gradients: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> Tensor:
    """The norm of all gradients of each run, to be looked at and not to compute with: [M]. It is with their padding."""
    of_each = [torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=dtype) for g in gradients.values()]
    norms_M: Tensor = torch.linalg.vector_norm(torch.stack(of_each), dim=0)
    return norms_M


def scale_of(norm_M: Tensor, limit_M: Tensor) -> Tensor:
    """The same, from the norms. A run without a limit keeps its gradients, whatever their norm."""
    scale = (limit_M / (norm_M + EPSILON)).clamp(max=1.0)
    return torch.where(limit_M < torch.inf, scale, 1.0)
