"""Each row alone, by the reference: as slow as can be."""

from __future__ import annotations

import torch
from torch import Tensor

from unroll.engines.torch.kernels import reference
from unroll.model.network import Network, States

supports = reference.supports


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """Row after row, put side by side."""
    rows = []
    for b in range(ids_MTB.shape[2]):
        own = tuple(tuple(s[:, b : b + 1] for s in state) for state in first)
        rows.append(reference.run(network, ids_MTB[:, :, b : b + 1], own, at_M))
    h_MTBH = torch.cat([h for h, _ in rows], dim=2)
    after = tuple(
        tuple(torch.cat(parts, dim=1) for parts in zip(*layers, strict=True))
        for layers in zip(*(states for _, states in rows), strict=True)
    )
    return h_MTBH, after
