"""Stands in for wandb 0.31, with its signatures: a store of runs that resumes as its server does, and refuses steps
that go back.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

__version__ = "0.31.0"
RUNS: dict[str, dict[str, Any]] = {}  # what the server has, by id
KEY = [True]  # whether somebody is logged in


class Settings:
    """The fields that are set here; another one is refused."""

    model_fields = dict.fromkeys((
        "silent", "console", "disable_git", "disable_code", "x_disable_meta", "x_disable_stats",
        "x_disable_machine_info", "host", "x_save_requirements", "init_timeout", "finish_timeout",
    ))  # fmt: skip

    def __init__(self, **fields: Any) -> None:
        assert fields.keys() <= self.model_fields.keys()


def setup(settings: Settings | None = None) -> SimpleNamespace:
    return SimpleNamespace(settings=SimpleNamespace(mode=os.environ.get("WANDB_MODE", "online")))


def login(
    key: str | None = None,
    relogin: bool | None = None,
    host: str | None = None,
    force: bool | None = None,
    timeout: int | None = None,
    verify: bool = True,
    referrer: str | None = None,
    prompt: bool = True,
) -> bool:
    assert not prompt, "it would ask at the terminal"
    assert not verify, "it would ask the server"
    return KEY[0]


class Run:
    def __init__(self, id: str, online: bool) -> None:
        self._here = RUNS[id] if online else RUNS.setdefault(f"offline {id}", {"points": [], "config": {}})
        self.step = self._here["points"][-1][0] + 1 if self._here["points"] else 0
        self.summary: dict[str, Any] = {}

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        assert step is not None
        assert step >= self.step, f"step {step} is before {self.step}: wandb drops it"
        self.step = step
        self._here["points"].append((step, dict(data)))

    def finish(self, exit_code: int | None = None) -> None:
        self._here["ended"] = exit_code, self.summary


def init(
    entity: str | None = None,
    project: str | None = None,
    dir: Any = None,
    id: str | None = None,
    name: str | None = None,
    notes: str | None = None,
    tags: Any = None,
    config: dict[str, Any] | None = None,
    config_exclude_keys: list[str] | None = None,
    config_include_keys: list[str] | None = None,
    allow_val_change: bool | None = None,
    group: str | None = None,
    job_type: str | None = None,
    mode: str | None = None,
    force: bool | None = None,
    reinit: Any = None,
    resume: Any = None,
    resume_from: str | None = None,
    fork_from: str | None = None,
    save_code: bool | None = None,
    settings: Settings | None = None,
) -> Run:
    assert id is not None
    assert (resume, reinit) == ("allow", "create_new"), "two runs in one process, each known again by its id"
    online = setup().settings.mode == "online"
    if online:
        about = {"name": name, "group": group, "project": project, "config": config}
        RUNS.setdefault(id, {"points": []}).update(about)
    return Run(id, online)
