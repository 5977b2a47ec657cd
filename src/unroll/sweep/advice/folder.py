"""The folder of a pilot: three folders of runs, and a file of its own.

alone/, together/, seeds/   the runs of each stage: sweeps that are trained within a budget
advice.json                 what was asked, what is spent, what each stage came to, and the advice when it is there
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unroll.base import locks, untrusted
from unroll.base.errors import RunError
from unroll.base.untrusted import MEGABYTE
from unroll.sweep.paced.folder import PacedFolder, read_sealed, write_sealed

ADVICE = "advice.json"
STAGES = ("alone", "together", "seeds")
MOST_BYTES = MEGABYTE  # of advice.json, which has some twenty kilobytes
MOST_SECONDS, MOST_NATS = 1e10, 1e6  # beyond these no clock and no model comes


@dataclass
class State:
    """How far a pilot is."""

    asked: dict[str, Any]  # what decides which runs there are
    budget: float
    spent: float = 0.0  # seconds, by the processes so far
    scores: dict[str, dict[str, float | None]] = field(default_factory=dict)  # nats of each run, by stage
    answer: dict[str, Any] | None = None


class AdviceFolder:
    """The files of one pilot."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def stage(self, name: str) -> PacedFolder:
        """The runs of one stage."""
        return PacedFolder(self.path / name)

    def is_advice(self) -> bool:
        """Whether there is a pilot to go on with."""
        return untrusted.is_regular(self.path / ADVICE)

    def refuse_occupied(self) -> None:
        """Refuse a folder that holds anything but a pilot."""
        try:
            if self.is_advice() or not untrusted.present(self.path):
                return
            occupied = not self.path.is_dir() or any(locks.others(self.path))
        except (OSError, ValueError) as error:  # a name that is too long, or a folder that may not be looked into
            raise RunError(f"Cannot use the folder {self.path}: {error}. Choose another with --out.") from None
        if occupied:
            raise RunError(f"{self.path} exists and holds no advice. Choose another folder with --out.")

    def require_own_kind(self) -> None:
        """Refuse a folder where anything but folders stands under the names of the stages."""
        wrong = [
            f"{self.path / name} must be a folder: it is something else."
            for name in STAGES
            if untrusted.present(self.path / name) and not untrusted.is_folder(self.path / name)
        ]
        if wrong:
            raise RunError(*wrong)

    def require_stages(self, names: Iterable[str]) -> None:
        """Refuse a folder from which the runs of a stage are gone that is over: the advice comes from all of them."""
        gone = [name for name in names if not self.stage(name).is_sweep()]
        if gone:
            raise RunError(
                *(f"{self.path / name} is gone, or holds no runs." for name in gone),
                "Bring that back, or choose another folder with --out.",
            )

    def make(self) -> None:
        """The folder itself."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(
                f"Cannot make the folder {self.path}: {error.strerror}. Choose another with --out."
            ) from None

    def locked(self) -> AbstractContextManager[str | None]:
        """Hold the folder, since two drivers cannot share it; gives a note on a lock that was left over."""
        return locks.hold(
            self.path,
            missing=f"{self.path} holds no advice.",
            busy=f"Another process is at work in {self.path}. Wait for it, or choose another folder.",
        )

    @property
    def state(self) -> State:
        """advice.json, read and checked."""
        try:
            content = untrusted.unsealed(read_sealed(self.path / ADVICE, MOST_BYTES))
            state = State(**{name: content[name] for name in State.__dataclass_fields__})
            right = (
                isinstance(state.asked, dict)
                and all(_is_number(n, MOST_SECONDS) for n in (state.budget, state.spent))
                and all(name in STAGES and _are_scores(scores) for name, scores in state.scores.items())
                and (state.answer is None or isinstance(state.answer, dict))
            )
            if not right:
                raise ValueError
            json.dumps(content, ensure_ascii=False).encode()  # half a character cannot be written again
            return state
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise RunError(f"{self.path / ADVICE} is damaged. Ask for advice in another folder, with --out.") from None

    @state.setter
    def state(self, state: State) -> None:
        write_sealed(self.path / ADVICE, vars(state))


def _are_scores(scores: Mapping[str, Any]) -> bool:
    return all(isinstance(name, str) and (n is None or _is_number(n, MOST_NATS)) for name, n in scores.items())


def _is_number(value: Any, most: float) -> bool:
    return type(value) in (int, float) and 0 <= value <= most
