"""The weights of a run's best evaluation so far.

They are held in memory: to write them at each early evaluation, when every one is the best, would cost more than the
training between two of them. Each checkpoint holds them beside the last weights, in the same file, so that neither can
be there without the other and a resumed run ends with the same bits. At a run's end they become best.safetensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from unroll.base.errors import RunError
from unroll.runs.checkpoints import BEST_BATCH, BEST_PREFIX, Checkpoint
from unroll.runs.selection import Point, lowest

if TYPE_CHECKING:
    from torch import Tensor


class BestWeights:
    """One run's."""

    def __init__(self) -> None:
        self.batch: int | None = None
        self.tensors: Mapping[str, Tensor] = {}

    def note(self, points: Sequence[Point], weights: Callable[[], Mapping[str, Tensor]]) -> None:
        """Keep the present weights if the last of a run's evaluations is its best."""
        best = lowest(points)
        if best is not None and best.batch == points[-1].batch:
            self.batch = best.batch
            self.tensors = {name: tensor.clone() for name, tensor in weights().items()}

    def saved(self) -> dict[str, Tensor]:
        """What a checkpoint holds of them."""
        return {BEST_PREFIX + name: tensor for name, tensor in self.tensors.items()}

    def facts(self) -> dict[str, str]:
        """Which evaluation they belong to."""
        return {} if self.batch is None else {BEST_BATCH: str(self.batch)}

    def restore(self, checkpoint: Checkpoint, points: Sequence[Point]) -> None:
        """As they were. A checkpoint of an older version has none: then only a later, better evaluation has weights."""
        batch = checkpoint.facts.get(BEST_BATCH)
        if batch is None:
            return
        best = lowest(points)
        if best is None or str(best.batch) != batch:
            raise RunError(
                f"The checkpoint of batch {checkpoint.batch:,} holds the weights of batch {batch[:20]} as the best "
                "ones, and by metrics.jsonl they are not. Bring both back from a copy."
            )
        self.batch = best.batch
        self.tensors = checkpoint.best
