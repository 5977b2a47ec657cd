"""The folder of a comparison: that of runs trained within a budget, and a file of its own.

compare.json   the answer, when it is there
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unroll.base import untrusted
from unroll.base.errors import RunError
from unroll.sweep.paced.folder import PacedFolder

ANSWER = "compare.json"


class ComparisonFolder(PacedFolder):
    """The files of one comparison."""

    def file_names(self) -> tuple[str, ...]:
        """Those of runs trained within a budget, and our own."""
        return (*super().file_names(), ANSWER)

    def is_comparison(self) -> bool:
        """Whether the sweep here is a comparison's."""
        return self.is_paced()

    @property
    def answer(self) -> dict[str, Any] | None:
        """compare.json; None where there is no answer yet."""
        if not untrusted.present(self.path / ANSWER):
            return None
        try:
            content = untrusted.unsealed(self.read_json(ANSWER))
            return {name: value for name, value in content.items() if name != "unroll"}
        except (OSError, ValueError):
            raise RunError(f"{self.path / ANSWER} is damaged. Delete it, and compare again: no run is lost.") from None

    @answer.setter
    def answer(self, answer: Mapping[str, Any]) -> None:
        self.write_json(ANSWER, answer)

    def forget_answer(self) -> None:
        """Delete an answer that more training will replace."""
        (self.path / ANSWER).unlink(missing_ok=True)
