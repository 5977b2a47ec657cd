"""How a stack of recurrent layers runs over time. One file per kernel; a file supplies

    supports(network, device)                 None, or the reason in words why not
    run(network, ids_MTB, first, at_M)        -> h_MTBH of the top layer, and every layer's state after step at_M

and, if `auto` may choose it, RANK: `auto` takes the kernel of the highest rank that can run a network. A kernel that
can do without a gradient for every step's h also supplies `run_last`. A kernel that takes [M, 1, H] for a first state
that all rows share sets ONE_ROW.

`reference` is the truth. Every kernel keeps these rules for each network that it supports:
- it equals `reference`: outputs, states, and the gradients of every weight and of `first`, clipped at the gates' sums;
- the states after step at_M are values, without a gradient, and a text in two pieces with them between is one pass;
- `run_last` gives the last steps of `run`;
- `supports` gives a reason in words for what it does not run; `auto` then takes the next kernel.

Shapes: M runs, T time, B rows, I inputs, H hidden, G gate columns.
"""

from __future__ import annotations

from typing import Protocol, cast

import torch
from torch import Tensor

from unroll.base import plugins
from unroll.base.errors import ConfigurationError
from unroll.model.network import Network, States


class Kernel(Protocol):
    """The interface of every kernel file."""

    def supports(self, network: Network, device: torch.device) -> str | None: ...

    def run(self, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]: ...


def load(name: str) -> Kernel:
    """The kernel behind an option's name."""
    return cast(Kernel, plugins.load("kernels", name))


def require(name: str, network: Network, device: torch.device) -> Kernel:
    """The kernel behind a name, or an error with the kernel's own reason why it cannot run this."""
    kernel = load(name)
    reason = kernel.supports(network, device)
    if reason:
        raise ConfigurationError(f"The kernel {name} cannot run this: {reason}. Choose another with --kernel.")
    return kernel


def choose(network: Network, device: torch.device) -> str:
    """The name of the kernel that `auto` stands for here."""
    if name := best(network, device):
        return name
    sentences = refusals(network, device)
    raise ConfigurationError(" ".join(("No kernel can run this.", *sentences, "Choose another --precision or --cell.")))


def refusals(network: Network, device: torch.device) -> list[str]:
    """One sentence for each kernel that `auto` may choose and that cannot run a network here."""
    reasons = {name: load(name).supports(network, device) for name in _ranked()}
    return [f"{name}: {reason}." for name, reason in reasons.items() if reason]


def best(network: Network, device: torch.device) -> str | None:
    """The name of the best kernel that runs a network here; None if there is none."""
    return next((name for name in _ranked() if load(name).supports(network, device) is None), None)


def _ranked() -> list[str]:
    """The names of the kernels that `auto` may choose, the best first."""
    ranks = {name: rank for name in plugins.names("kernels") if (rank := getattr(load(name), "RANK", 0))}
    return sorted(ranks, key=ranks.__getitem__, reverse=True)


def products_by_torch(network: Network) -> str | None:
    """The refusal of a kernel whose products are torch's, of parameters as they are; None if it can run the network."""
    if network.precision == "bfloat16":
        return "it does not round what it multiplies to bfloat16"
    return None


def run_last(
    kernel: Kernel, network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int
) -> tuple[Tensor, States]:
    """Run a kernel, but return h of the last K steps alone. First states are [M, B, H] or [M, 1, H].

    A kernel may do this itself: the gradient of a slice would be a copy, most of it zeros.
    """
    if not getattr(kernel, "ONE_ROW", False):
        first = tuple(tuple(s.expand(-1, ids_MTB.shape[2], -1) for s in state) for state in first)
    if kernel_run_last := getattr(kernel, "run_last", None):
        return cast(tuple[Tensor, States], kernel_run_last(network, ids_MTB, first, at_M, K))
    h_MTBH, after = kernel.run(network, ids_MTB, first, at_M)
    return h_MTBH if h_MTBH.shape[1] == K else h_MTBH[:, -K:], after
