"""What a pilot recommends, as an object that shows itself; and how it is read from its folder."""

from __future__ import annotations

from typing import Any, final

from unroll.base.durations import duration
from unroll.base.errors import RunError
from unroll.base.printable import one_line
from unroll.sweep.advice.folder import ADVICE, AdviceFolder
from unroll.sweep.advice.tables import tables
from unroll.sweep.answer_shown import Answer
from unroll.sweep.comparison.tables import Table


@final
class Advice(Answer):
    """What a pilot recommends: the facts of advice.json, and how they read."""

    @property
    def setting(self) -> dict[str, Any]:
        """The setting to take, with all that is known of it."""
        return dict(self.facts["settings"][self.facts["taken"]])

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Those of the last stage, the best first."""
        return list(self.facts["settings"])

    @property
    def expected(self) -> tuple[float, float, float] | None:
        """The test perplexity of a full run: expected, and the ends of its interval; None where nothing was finite."""
        known = self.facts["expected"]
        if known is None:
            return None
        high = float("inf") if known["high"] is None else float(known["high"])
        return float(known["perplexity"]), float(known["low"]), high

    def tables(self) -> list[Table]:
        """The last stage, then those before it."""
        return tables(self.facts)

    def in_print_order(self) -> list[Table]:
        """The last stage stands last, next to the sentences."""
        return self.tables()[::-1]

    def paragraphs(self) -> list[str]:
        """Each sentence by itself."""
        return self.sentences

    def __repr__(self) -> str:
        found = "nothing to take"
        if self.expected is not None:
            found = f"{self.setting['words']}, perplexity {self.expected[0]:.3f} expected"
        return one_line(f"<Advice on {self.facts['corpus']}: {found}>")


def read(folder: AdviceFolder) -> Advice:
    """The advice in a folder; whether it is one is looked at here, since a stranger may have written it."""
    facts = folder.state.answer
    if facts is None:
        raise RunError(f"{folder.path} holds no advice yet. Go on with it: give the same command as before.")
    try:
        advice = Advice(facts, folder.path)
        advice.lines()
        advice.command.encode()
        advice.__repr__()
        duration(facts["clocks"]["spent"])
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise RunError(f"{folder.path / ADVICE} is damaged. Ask for advice in another folder, with --out.") from None
    return advice
