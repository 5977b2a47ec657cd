"""The update of any optimiser on a CPU: torch's operations on pieces of the parameters, which threads share."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from unroll.engines.cpu import workers
from unroll.engines.judged_update import JudgedUpdate, change
from unroll.model.engine import FleetTensors

PIECE = 1 << 16  # elements that the optimiser changes at once, so that what it computes in between stays in the cache


class ThreadedUpdate(JudgedUpdate):
    """The number of the update is a plain number: every step is computed anew."""

    def __init__(self, fleet: FleetTensors) -> None:
        super().__init__(fleet)
        self._count = 0

    def begin(self, count: int) -> None:
        """The next update has this number, counted from 1."""
        self._count = count

    def change(self, gradients: Mapping[str, Tensor], alive_M: Tensor) -> None:
        """Change weights and moments where a run is alive."""
        fleet, all_alive = self.fleet, bool(alive_M.all())
        pieces = []
        for name, gradient in gradients.items():
            rows = max(1, PIECE // (gradient.numel() // gradient.shape[1]))
            tensors = (fleet.parameters[name], gradient, *fleet.moments[name])
            pieces += list(zip(*(x.split(rows, 1) for x in tensors), strict=True))

        threads = workers.count()  # as this thread knows it: a thread that does a part has only itself

        def change_every(thread: int) -> None:
            for parameter, gradient, *moments in pieces[thread::threads]:
                change(fleet, parameter, gradient, tuple(moments), alive_M, self._count, all_alive)

        workers.each(threads, change_every)
