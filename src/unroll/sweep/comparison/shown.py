"""What a comparison found, as an object that shows itself; and how it is read from its folder."""

from __future__ import annotations

from typing import Any, final

from unroll.base.errors import RunError
from unroll.base.printable import one_line
from unroll.sweep.answer_shown import Answer
from unroll.sweep.comparison.folder import ANSWER, ComparisonFolder
from unroll.sweep.comparison.tables import Table, tables


@final
class Comparison(Answer):
    """What a comparison found: the facts of compare.json, and how they read."""

    @property
    def schemes(self) -> list[dict[str, Any]]:
        """The schemes, the best first, with all that is known of each."""
        return list(self.facts["schemes"])

    @property
    def settings(self) -> list[dict[str, Any]]:
        """Every scheme with every k1."""
        return list(self.facts["settings"])

    @property
    def winner(self) -> str | None:
        """The scheme that is better than every other beyond what seeds do; None where none is."""
        return str(self.schemes[0]["scheme"]) if self.facts["winner"] else None

    @property
    def sure(self) -> float | None:
        """How sure it is that the first is better than the second, from 0 to 1."""
        sure = self.facts["sure"]
        return None if sure is None else float(sure)

    def tables(self) -> list[Table]:
        """The ranking, then what it is made of."""
        return tables(self.facts)

    def paragraphs(self) -> list[str]:
        """All sentences in one."""
        return [" ".join(self.sentences)]

    def __repr__(self) -> str:
        first = self.schemes[0]["scheme"] if self.schemes else "nothing"
        sure = "" if self.sure is None else f", sure {self.sure:.0%}"
        return one_line(f"<Comparison on {self.facts['corpus']}: {first} first{sure}>")


def read(folder: ComparisonFolder) -> Comparison:
    """The answer in a folder; whether it is one is looked at here, since a stranger may have written it."""
    facts = folder.answer
    if facts is None:
        raise RunError(f"{folder.path} holds no answer yet. Go on with it: give the same command as before.")
    try:
        comparison = Comparison(facts, folder.path)
        comparison.lines()
        comparison.command.encode()
        comparison.__repr__()
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise RunError(f"{folder.path / ANSWER} is damaged. Delete it, and compare again.") from None
    return comparison
