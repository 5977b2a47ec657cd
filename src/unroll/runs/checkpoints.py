"""A run's folder of checkpoints: batch-000000120.safetensors and the one before it. Its other files are not ours."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unroll.base import atomic_files, untrusted
from unroll.base.errors import RunError, SaveError

if TYPE_CHECKING:
    from torch import Tensor

KEPT = 2
# The weights of the best evaluation stand beside the last ones, under their names with this before them.
BEST_PREFIX = "best."
BEST_BATCH = "best_batch"  # the fact that says which evaluation that was
_NAME = re.compile(r"batch-([0-9]{9,10})\.safetensors")


@dataclass(frozen=True)
class Checkpoint:
    """A run at one batch."""

    batch: int
    tensors: dict[str, Tensor]
    facts: dict[str, str]

    @property
    def last(self) -> dict[str, Tensor]:
        """What training goes on from."""
        return {name: tensor for name, tensor in self.tensors.items() if not name.startswith(BEST_PREFIX)}

    @property
    def best(self) -> dict[str, Tensor]:
        """The weights of the best evaluation so far, under their own names; nothing where there are none."""
        held = {name: tensor for name, tensor in self.tensors.items() if name.startswith(BEST_PREFIX)}
        return {name.removeprefix(BEST_PREFIX): tensor for name, tensor in held.items()}


def read_checkpoint(path: Path, at_most: int) -> Checkpoint:
    """Read a checkpoint of at most this many bytes, or raise a RunError that says what is wrong with it."""
    tensors, facts = atomic_files.unseal(path, at_most)
    try:
        batch = int(facts["batch"])
        size = int(facts["metrics_bytes"])
        clocks = float(facts["seconds"]) + float(facts["evaluating"])
        if not 0 <= batch < 2**31 or size < 0 or not math.isfinite(clocks):
            raise ValueError
    except (KeyError, ValueError):
        raise RunError(f"{path} is no checkpoint: its batch, metrics_bytes or seconds are missing.") from None
    return Checkpoint(batch, tensors, facts)


class Checkpoints:
    """The checkpoint files of a run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, batch: int) -> Path:
        """The path of a batch's checkpoint, whether it exists or not."""
        return self.folder / f"batch-{batch:09d}.safetensors"

    def batches(self) -> list[int]:
        """The batches that have a checkpoint, good or bad, in order."""
        if not untrusted.is_folder(self.folder):
            return []
        names = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        batches = {int(name[1]) for name in names if name}
        return sorted(batch for batch in batches if untrusted.is_regular(self.path(batch)))

    def read(self, batch: int, at_most: int) -> Checkpoint:
        """Read a checkpoint of at most this many bytes, or raise a RunError that says what is wrong with it."""
        path = self.path(batch)
        checkpoint = read_checkpoint(path, at_most)
        if checkpoint.batch != batch:
            raise RunError(f"{path} is the checkpoint of batch {checkpoint.batch:,}, whatever its name says.")
        return checkpoint

    def newest_facts(self) -> dict[str, str]:
        """What the newest checkpoint with a header states about its run; its hash is not checked."""
        for batch in reversed(self.batches()):
            with suppress(RunError):
                return atomic_files.header_facts(self.path(batch))
        return {}

    def write(self, batch: int, tensors: Mapping[str, Tensor], facts: Mapping[str, str]) -> None:
        """Write a checkpoint and drop all but the last two."""
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise SaveError(f"Could not make {self.folder}: {error.strerror}.") from None
        if not untrusted.is_folder(self.folder):
            raise SaveError(f"Could not save to {self.folder}: it is a link, and links are not followed.")
        atomic_files.write(self.path(batch), atomic_files.seal(tensors, facts))
        for old in self.batches()[:-KEPT]:
            self.path(old).unlink(missing_ok=True)

    def drop(self, after: int = -1) -> None:
        """Delete the checkpoints of later batches, and nothing else."""
        for batch in self.batches():
            if batch > after:
                self.path(batch).unlink(missing_ok=True)

    def clear_partials(self) -> None:
        """Remove what killed processes left half written; the caller holds the run."""
        if untrusted.is_folder(self.folder):
            atomic_files.clear_partials(self.folder, lambda name: bool(_NAME.fullmatch(name)), alone=True)

    def remove(self) -> None:
        """Delete the checkpoints, and the folder unless it holds other files."""
        self.drop()
        self.clear_partials()
        if untrusted.is_folder(self.folder):
            with suppress(OSError):
                self.folder.rmdir()
