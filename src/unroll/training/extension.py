"""A run that has finished, and trains on: as if it had been that long from the start.

`keep_optimiser` keeps the state after the last batch, as it was before the last evaluation: a longer run has no
evaluation there, or one of its own kind. What is done to go on can be killed at any moment: the run has ended, as
before, or it has stopped after its last batch, and the same command makes it longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unroll.base.errors import RunError
from unroll.experiment.experiment import Experiment
from unroll.model import optimisers
from unroll.runs.checkpoints import Checkpoint
from unroll.runs.folder import RunFolder
from unroll.runs.status_file import ENDED

ANEW = "A new run begins from its weights with `unroll train --from`."
HOW_TO_KEEP = "This run cannot be extended after its end; --keep-optimiser keeps what that needs."
SPREAD = (
    "Once extended, this run is not scored where a run that was longer from the start is: --evaluations spreads points "
    "over all batches."
)


def why_not(experiment: Experiment) -> str | None:
    """Why a run of these settings is not what it would be had it been longer, in words; None where it is.

    Where what a batch does depends on how many there are in all, as a learning rate that falls until the last batch
    does, more batches would be another training.
    """
    if experiment.depends_on_length:
        return "its learning rate depends on how long it is"
    return None


def note(experiment: Experiment) -> str | None:
    """What should be known of a run's end when it begins."""
    if not experiment.keep_optimiser:
        return HOW_TO_KEEP
    if reason := why_not(experiment):
        return f"This run cannot be extended after its end: {reason}."
    return SPREAD if experiment.evaluations is not None else None


def require(folder: RunFolder, together: int = 1) -> Checkpoint:
    """The state that a run which has ended goes on from; refused where that cannot be exact, all reasons at once.

    `together` is how many runs are made longer side by side: as many as there were, since last bits depend on it.
    """
    status, experiment = folder.status, folder.experiment
    ended = f"{folder.path} has already {status['state']} after {status['batch']:,} batches"
    if status["state"] == "stopped":
        raise RunError(f"{ended}, and what stopped is not extended. {ANEW}")
    if status.get("reason"):
        raise RunError(f"{ended}, before its last: {status['reason']} What ended early is not extended. {ANEW}")
    wrong = []
    if not folder.has_kept():
        wrong.append(f"{ended} and kept nothing to go on from: --keep-optimiser has to be said before. {ANEW}")
    beside = int(status.get("fleet") or 1) - 1
    if beside != together - 1:
        now = f"beside {together - 1} others" if together > 1 else "alone"
        wrong.append(f"{ended}, side by side with {beside} others, and {now} is another training. {ANEW}")
    if reason := why_not(experiment):
        wrong.append(f"{ended}, and cannot be extended: {reason}. {ANEW}")
    if wrong:
        raise RunError(*wrong)
    return _end(folder)


def _end(folder: RunFolder) -> Checkpoint:
    """The state that was kept, which must be that of the end, whole, and of these weights."""
    kept, batch = folder.kept(), folder.status["batch"]
    folder.require_goes_on(kept)
    weights, _ = folder.weights()
    same = all(name in kept.tensors and torch.equal(kept.tensors[name], value) for name, value in weights.items())
    parameters = [name for name in weights if not name.startswith("carried.")]
    moments = optimisers.load(folder.experiment.optimiser).MOMENTS
    held = {name: value.shape for name, value in kept.tensors.items()}
    whole = all(held.get(f"optimiser.{m}.{name}") == weights[name].shape for m in moments for name in parameters)
    if kept.batch != batch or not (same and whole and "progress.loss_sum" in held):
        raise RunError(f"{folder.kept_path} is not of the end of this run. Copy the whole folder. {ANEW}")
    return kept


def open_again(folder: RunFolder, experiment: Experiment, together: int = 1) -> None:
    """Let a run go on that has ended, where the experiment is longer; the caller holds its folder.

    Of several that get longer together, one that diverged stays as it is: it would have, had they been longer at once.
    """
    status = folder.status
    has_ended = status["state"] in ENDED
    if has_ended and (experiment.batches <= length(status) or (status["state"] == "stopped" and together > 1)):
        return
    if has_ended:
        folder.reopen(require(folder, together), {**status, "state": "interrupted"})
    folder.drop_kept()  # of an earlier end: a longer run keeps another


def length(status: Mapping[str, Any]) -> int:
    """How many batches a run was to have when it ended."""
    return int(status.get("batches") or status["batch"])


def has_ended(folder: RunFolder, experiment: Experiment) -> bool:
    """Whether nothing more is to be trained: it ended, and the experiment asks for no longer run that it kept."""
    if not folder.has_ended():
        return False
    status = folder.status
    longer = experiment.keep_optimiser and length(status) < experiment.batches
    return not (longer and status["state"] == "finished" and not status.get("reason"))
