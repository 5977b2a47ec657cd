"""Stands in for mlflow 3.17, with its signatures and its limits: a store of runs in memory."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from mlflow.entities import Metric, Param

RUNS: dict[str, dict[str, Any]] = {}
EXPERIMENTS: dict[str, str] = {}


class MlflowClient:
    def __init__(
        self,
        tracking_uri: str | None = None,
        registry_uri: str | None = None,
        workspace_store_uri: str | None = None,
    ) -> None: ...

    def get_experiment_by_name(self, name: str) -> SimpleNamespace | None:
        return SimpleNamespace(experiment_id=EXPERIMENTS[name]) if name in EXPERIMENTS else None

    def create_experiment(self, name: str, artifact_location: str | None = None, tags: Any = None) -> str:
        assert name not in EXPERIMENTS
        EXPERIMENTS[name] = str(len(EXPERIMENTS) + 1)
        return EXPERIMENTS[name]

    def search_runs(
        self,
        experiment_ids: list[str],
        filter_string: str = "",
        run_view_type: int = 1,
        max_results: int = 1000,
        order_by: list[str] | None = None,
        page_token: str | None = None,
    ) -> list[SimpleNamespace]:
        wanted = re.fullmatch(r"tags\.`([\w.]+)` = '(\w+)'", filter_string)
        assert wanted
        found = [
            _entity(id)
            for id, run in RUNS.items()
            if run["experiment"] in experiment_ids and run["tags"].get(wanted[1]) == wanted[2]
        ]
        return found[:max_results]

    def create_run(
        self,
        experiment_id: str,
        start_time: int | None = None,
        tags: dict[str, Any] | None = None,
        run_name: str | None = None,
    ) -> SimpleNamespace:
        assert experiment_id in EXPERIMENTS.values()
        id = f"{len(RUNS):032x}"
        RUNS[id] = {
            "experiment": experiment_id, "name": run_name, "tags": dict(tags or {}), "params": {}, "metrics": {},
            "status": "RUNNING",
        }  # fmt: skip
        return _entity(id)

    def log_batch(
        self,
        run_id: str,
        metrics: Sequence[Metric] = (),
        params: Sequence[Param] = (),
        tags: Sequence[Any] = (),
        synchronous: bool | None = None,
    ) -> None:
        run = RUNS[run_id]
        assert len(metrics) <= 1000
        assert len(params) <= 100
        for param in params:
            assert run["params"].get(param.key, param.value) == param.value, "a param cannot be changed"
            run["params"][param.key] = param.value
        for metric in metrics:
            value = math.copysign(sys.float_info.max, metric.value) if math.isinf(metric.value) else metric.value
            run["metrics"].setdefault(metric.key, []).append(Metric(metric.key, value, metric.timestamp, metric.step))

    def get_metric_history(self, run_id: str, key: str) -> list[Metric]:
        return list(RUNS[run_id]["metrics"].get(key, []))

    def set_terminated(self, run_id: str, status: str | None = None, end_time: int | None = None) -> None:
        assert status in ("FINISHED", "FAILED", "KILLED")
        RUNS[run_id]["status"] = status

    def update_run(self, run_id: str, status: str | None = None, name: str | None = None) -> None:
        RUNS[run_id]["status"] = status


def _entity(id: str) -> SimpleNamespace:
    run = RUNS[id]
    newest = {key: points[-1].value for key, points in run["metrics"].items()}
    data = SimpleNamespace(params=dict(run["params"]), metrics=newest, tags=dict(run["tags"]))
    return SimpleNamespace(info=SimpleNamespace(run_id=id, status=run["status"]), data=data)
