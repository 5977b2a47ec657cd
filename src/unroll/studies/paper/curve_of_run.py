"""From a run's folder to its curve in a record."""

from __future__ import annotations

from unroll.corpus.batches import Schedule
from unroll.corpus.corpus import Corpus
from unroll.experiment.experiment import Experiment
from unroll.runs.folder import RunFolder
from unroll.studies.paper.experiments import title
from unroll.studies.paper.figures import Series
from unroll.studies.paper.records import CARRIED, LARGEST, Curve, Points, significant


def curve_of_run(experiment: Experiment, series: Series, corpus: Corpus, run: RunFolder) -> Curve:
    """Read a finished run's folder as a curve of its training's first scheme."""
    status = run.status
    lines = run.metrics
    points: Points = {
        "batch": [line["batch"] for line in lines],
        "sequences": [line["sequences"] for line in lines],
        "loss": [significant(line["loss"], 6) for line in lines],
        **{p: [significant(line["perplexity"].get(p), 6) for line in lines] for p in ("windowed", "progressive")},
        "seconds": [significant(line["seconds"], 4) for line in lines],
    }
    for name in LARGEST:
        points[name] = [significant(line.get(name), 6) for line in lines]
    if experiment.evaluate_carried:
        points[CARRIED] = [significant(line.get("carried"), 6) for line in lines]
    stopped = status["state"] == "stopped"
    return Curve(
        corpus=series.corpus,
        title=title(series.corpus, corpus),
        sha256=experiment.sha256,
        scheme=series.scheme,
        train=series.train,
        sample=series.sample,
        layers=series.layers,
        hidden=series.hidden,
        k1=series.k1,
        k2=series.k2,
        seed=experiment.seed,
        batches=experiment.batches,
        rows=experiment.rows,
        variant=series.variant,
        identity=experiment.identity,
        state=status["state"],
        reason=status.get("reason"),
        stopped_at=status["batch"] + 1 if stopped else None,
        fleet=status["fleet"],
        kernel=status["kernel"],
        precision=experiment.precision,
        device=status["device"],
        evaluating=significant(status["evaluating"], 4) or 0.0,
        points=points,
        epoch=Schedule(experiment, corpus.split(experiment.split_seed, experiment.validation).train).batches_an_epoch,
    )
