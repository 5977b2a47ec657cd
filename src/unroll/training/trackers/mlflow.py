"""MLflow: a run there for each of ours, in the experiment MLFLOW_EXPERIMENT_NAME, or `unroll`; a sweep is a tag.

MLFLOW_TRACKING_URI says where. A run is known again by a tag with its key; resumed, it goes on with the points that it
does not have. MLflow's databases keep the largest number there is in place of an infinite one.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from unroll.training import trackers
from unroll.training.trackers import Line, Tracked

INSTALL = "pip install mlflow"
EXPERIMENT = "unroll"
KEY, SWEEP = "unroll.run", "unroll.sweep"  # tags
STATES = {"finished": "FINISHED", "interrupted": "KILLED"}  # every other one is FAILED
MOST_POINTS, MOST_SETTINGS = 1000, 100  # in one message


def why_not() -> str | None:
    """Whether the package is there."""
    return trackers.missing("mlflow", "The tracker mlflow", INSTALL)


class _Run:
    """A run of MLflow's."""

    def __init__(self, run: Tracked, lines: Sequence[Line]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._metric: Any = Metric
        with _in_silence():
            self._client: Any = MlflowClient()
            experiment = self._experiment()
        wanted = f"tags.`{KEY}` = '{run.key}'"
        before = self._client.search_runs([experiment], filter_string=wanted, max_results=1)
        if before:
            known = before[0]
            self._client.update_run(known.info.run_id, status="RUNNING")
        else:
            tags = {KEY: run.key} | ({SWEEP: run.group} if run.group else {})
            known = self._client.create_run(experiment, tags=tags, run_name=run.name)
        self._id: str = known.info.run_id
        # A setting of MLflow's cannot be changed: the device, say, stays the one that the run began on.
        new = [Param(name, str(value)) for name, value in run.settings.items() if name not in known.data.params]
        for start in range(0, len(new), MOST_SETTINGS):
            self._client.log_batch(self._id, params=new[start : start + MOST_SETTINGS])
        # What is trained again after a kill has the numbers that it had: it is not logged twice.
        self._there = {name: self._steps(name) for name in known.data.metrics}
        self._log(lines)

    def _experiment(self) -> str:
        if given := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return given
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or EXPERIMENT
        there = self._client.get_experiment_by_name(name)
        return str(there.experiment_id if there is not None else self._client.create_experiment(name))

    def _steps(self, key: str) -> set[int]:
        return {point.step for point in self._client.get_metric_history(self._id, key)}

    def add(self, line: Line) -> None:
        """Log its points."""
        self._log([line])

    def _log(self, lines: Sequence[Line]) -> None:
        now = int(1000 * time.time())
        points = [
            self._metric(name, value, now, line["batch"])
            for line in lines
            for name, value in trackers.points(line).items()
            if line["batch"] not in self._there.get(name, ())
        ]
        for start in range(0, len(points), MOST_POINTS):
            self._client.log_batch(self._id, metrics=points[start : start + MOST_POINTS])

    def end(self, state: str) -> None:
        """Say how it ended."""
        self._client.set_terminated(self._id, STATES.get(state, "FAILED"))


begin = _Run


@contextmanager
def _in_silence() -> Iterator[None]:
    """MLflow reports that it makes a database: nobody asked here."""
    logger = logging.getLogger("mlflow")
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
