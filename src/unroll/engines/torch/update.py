"""The plain update: any optimiser, on any device, one parameter after another."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from unroll.engines.judged_update import JudgedUpdate, change


class PlainUpdate(JudgedUpdate):
    """Keeps the number of the update in a tensor, so that the host never waits for the device."""

    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments of the runs that are alive."""
        fleet = self.fleet
        count, scale_M = (fleet.number + 1).double(), self.scale_M(gradients)
        for name, gradient in gradients.items():
            change(fleet, fleet.parameters[name], gradient, fleet.moments[name], alive_M, count, scale_M=scale_M)
