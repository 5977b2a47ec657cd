"""The update by any optimiser on a CPU: threads share torch's operations on pieces of the parameters."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from unroll.engines.cpu import workers
from unroll.engines.judged_update import JudgedUpdate, change
from unroll.model.engine import FleetTensors

PIECE = 1 << 16  # elements that the optimiser changes at once: its intermediate results then stay in the cache


class ThreadedUpdate(JudgedUpdate):
    """Keeps the number of the update as a plain number, since every step is computed anew."""

    def __init__(self, fleet: FleetTensors) -> None:
        super().__init__(fleet)
        self._count = 0

    def begin(self, count: int) -> None:
        """Begin the update with this number, counted from 1."""
        self._count = count

    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments of the runs that are alive."""
        fleet = self.fleet
        all_alive, scale_M = bool(alive_M.all()), self.scale_M(gradients)
        pieces = []
        for name, gradient in gradients.items():
            rows = max(1, PIECE // (gradient.numel() // gradient.shape[1]))
            tensors = (fleet.parameters[name], gradient, *fleet.moments[name])
            pieces += list(zip(*(x.split(rows, 1) for x in tensors), strict=True))

        threads = workers.count()  # asked here: a thread that does a piece counts only itself

        def change_every(thread: int) -> None:
            for parameter, gradient, *moments in pieces[thread::threads]:
                change(fleet, parameter, gradient, tuple(moments), alive_M, self._count, all_alive, scale_M)

        workers.each(threads, change_every)
