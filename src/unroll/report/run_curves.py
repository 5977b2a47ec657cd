"""A run's folder as curves, in the form of the paper's records."""

from __future__ import annotations

from typing import Any

from unroll.base.errors import RunError
from unroll.experiment.experiment import Experiment
from unroll.experiment.scheme import SCHEMES, Scheme
from unroll.experiment.settings import settings_of
from unroll.model.conditioning import PROCEDURES
from unroll.runs import selection
from unroll.runs.folder import RunFolder
from unroll.studies.paper.records import COLUMNS, Curve

# Settings of training that a curve states in a field of its own, or by its corpus's hash.
STATED = {
    "kind",
    "encoding",
    "sha256",
    "validation_file_sha256",
    "test_file_sha256",
    "layers",
    "hidden",
    "seed",
    "precision",
}
OTHER = 0  # the number of a scheme that the paper does not have


def curves(folder: RunFolder) -> tuple[list[Curve], list[str]]:
    """Read the run under its own procedure, and under another that was scored on the way and not at the end alone.

    The second value says in words where run.toml differs from what the weights know of their training.
    """
    folder.require_own_kind()
    experiment, changes = folder.described()
    status = folder.status
    points = _points(folder)
    procedure = experiment.scheme.sample
    others = [name for name in PROCEDURES if name != procedure and _scored(points[name]) > 1]
    samples = (procedure, *others)
    return [_curve(experiment, status, points | _validation(folder, experiment, s), s) for s in samples], changes


def _validation(folder: RunFolder, experiment: Experiment, sample: str) -> dict[str, list[Any]]:
    """The column by which a run with a validation set was chosen, under a procedure."""
    if selection.chosen_on(experiment) == selection.TEST_SET:
        return {}
    return {"validation": [line.get("validation", {}).get(sample) for line in folder.metrics]}


def _scored(column: list[Any]) -> int:
    return sum(value is not None for value in column)


def _points(folder: RunFolder) -> dict[str, list[Any]]:
    """The columns of metrics.jsonl; a procedure that was not scored at a point is null there."""
    lines = folder.metrics
    procedures = dict.fromkeys((*PROCEDURES, folder.experiment.scheme.sample))
    try:
        for line in lines:
            procedures |= dict.fromkeys(line["perplexity"])
        columns = {name: [line[name] for line in lines] for name in COLUMNS if name not in PROCEDURES}
        columns |= {name: [line["perplexity"].get(name) for line in lines] for name in procedures}
    except (KeyError, TypeError, AttributeError):
        raise RunError(f"{folder.path / 'metrics.jsonl'} is damaged: a line lacks what an evaluation has.") from None
    if not all(value is None or isinstance(value, int | float) for column in columns.values() for value in column):
        raise RunError(f"{folder.path / 'metrics.jsonl'} is damaged: an evaluation holds something that is no number.")
    return columns


def _curve(experiment: Experiment, status: dict[str, Any], points: dict[str, list[Any]], sample: str) -> Curve:
    e, s = experiment, experiment.scheme
    stopped = status["state"] == "stopped"
    return Curve(
        corpus=e.title or e.corpus or "text",
        title=e.title or e.corpus or "text",
        sha256=e.sha256,
        scheme=_number(s, sample),
        train=s.training,
        sample=sample,
        layers=e.layers,
        hidden=e.hidden,
        k1=s.k1,
        k2=s.k2,
        seed=e.seed,
        batches=e.batches,
        rows=e.rows,
        variant=_variant(e),
        identity=e.identity,
        state=status["state"],
        reason=_text(status.get("reason")),
        stopped_at=status["batch"] + 1 if stopped else None,  # the status counts the batches that were good
        fleet=int(status.get("fleet") or 1),
        kernel=_text(status.get("kernel")) or e.kernel,
        precision=e.precision,
        device=_text(status.get("device")) or e.device,
        evaluating=float(status.get("evaluating") or 0.0),
        points=points,
    )


def _number(scheme: Scheme, sample: str) -> int:
    """The paper's number of a training procedure under a sampling procedure."""
    procedures = (scheme.training, sample)
    return next((n for n, s in SCHEMES.items() if (s.training, s.sample) == procedures), OTHER)


def _variant(experiment: Experiment) -> dict[str, Any]:
    """The settings that differ from the paper's and have no field of their own: training sees or a table shows them."""
    defaults = Experiment()
    varied = {
        field.name: getattr(experiment, field.name)
        for field, setting in settings_of(Experiment)
        if (setting.trains or setting.column)
        and field.name not in STATED
        and getattr(experiment, field.name) != getattr(defaults, field.name)
    }
    if experiment.cell != "lstm":  # another cell has neither
        varied.pop("peepholes", None)
        varied.pop("forget_bias", None)
    return varied


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
