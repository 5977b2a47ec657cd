"""Weights & Biases: a run there for each of ours, in the project WANDB_PROJECT, or `unroll`; a sweep is a group.

W&B's own environment variables hold: WANDB_API_KEY, WANDB_ENTITY, WANDB_MODE, WANDB_DIR, WANDB_BASE_URL. A process of
its own uploads. Resumed, a run goes on under its id after the last step that W&B has; offline, where nobody knows what
that is, each begin is a whole new run.
"""

from __future__ import annotations

import inspect
import os
import secrets
from collections.abc import Sequence
from typing import Any

from unroll.training import trackers
from unroll.training.trackers import Line, Tracked

INSTALL = "pip install wandb"
PROJECT = "unroll"
WAIT = 30.0  # seconds for the server's answer at the beginning, and for what is left to upload at the end
OFFLINE = ("offline", "dryrun")
# Only what we tell is sent: no console, no machine, no repository, no list of packages.
SETTINGS = {
    "silent": True,
    "console": "off",
    "disable_git": True,
    "disable_code": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_disable_machine_info": True,
    "host": "-",
    "x_save_requirements": False,
    "init_timeout": WAIT,
    "finish_timeout": WAIT,
}


def why_not() -> str | None:
    """Whether the package is there."""
    return trackers.missing("wandb", "The tracker wandb", INSTALL)


class _Run:
    """A run of W&B's."""

    def __init__(self, run: Tracked, lines: Sequence[Line]) -> None:
        import wandb

        known = wandb.Settings.model_fields
        settings = {name: value for name, value in SETTINGS.items() if name in known}
        mode = wandb.setup(settings=wandb.Settings(silent=True)).settings.mode
        if mode not in (*OFFLINE, "disabled"):
            _require_key(wandb)
        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT") or PROJECT,
            id=secrets.token_hex(8) if mode in OFFLINE else run.key,
            name=run.name,
            group=run.group,
            config=run.settings,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(**settings),
        )
        self._next = self._run.step  # of a run that goes on, the first step that W&B does not have
        for line in lines:
            self.add(line)

    def add(self, line: Line) -> None:
        """Log its points, unless they are there: what was trained again after a kill has the numbers that it had."""
        if line["batch"] >= self._next:
            self._run.log(trackers.points(line), step=line["batch"])

    def end(self, state: str) -> None:
        """Finish: successfully, or not."""
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "finished" else 1)


begin = _Run


def _require_key(wandb: Any) -> None:
    """Raise where nobody is logged in: `wandb.init` would ask at the terminal."""
    if "prompt" not in inspect.signature(wandb.login).parameters:
        raise RuntimeError(f"wandb {wandb.__version__} asks for a key at the terminal: {INSTALL} --upgrade")
    if not wandb.login(prompt=False, verify=False):
        raise RuntimeError("nobody is logged in to W&B here: wandb login, or set WANDB_API_KEY, or WANDB_MODE=offline")
