"""Every curve of a page once, as its data: compact, in a fixed order."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from unroll.studies.paper.claims.thresholds import WARM_UP
from unroll.studies.paper.records import CARRIED, Curve, significant

DIGITS = {"loss": 6, "seconds": 4}  # significant digits on the page; perplexities like the loss
SHARED = ("batch", "sequences")  # the page counts sequences by itself


class Curves:
    """The curves that figures refer to by number."""

    def __init__(self) -> None:
        self.curves: list[Curve] = []
        self.names: list[list[str]] = []
        self._numbers: dict[str, int] = {}

    def number(self, curve: Curve, name: str | None = None) -> int:
        """A curve's number; a curve of two figures has one number and both names."""
        key = repr(curve) + repr(curve.points)
        if key not in self._numbers:
            self._numbers[key] = len(self.curves)
            self.curves.append(curve)
            self.names.append([])
        number = self._numbers[key]
        if name is not None and name not in self.names[number]:
            self.names[number].append(name)
        return number

    def facts(self) -> tuple[list[dict[str, Any]], list[list[int]]]:
        """All curves for the page, and the grids of batches that they share."""
        grids: list[list[int]] = []
        entries = []
        for curve, names in zip(self.curves, self.names, strict=True):
            batches = curve.points["batch"]
            if batches not in grids:
                grids.append(batches)
            facts = {f.name: getattr(curve, f.name) for f in fields(curve) if f.name != "points"}
            columns = {name: column for name, column in curve.points.items() if name not in SHARED}
            entries.append(
                facts
                | {"name": ", ".join(names), "unstable": self._unstable(curve), "grid": grids.index(batches)}
                | {name: _rounded(column, DIGITS.get(name, 6)) for name, column in columns.items()}
            )
        return entries, grids

    def _unstable(self, curve: Curve) -> list[int]:
        """The first unstable batch, and the first from WARM_UP on; scheme 3 measures conditional training too."""
        if not curve.scored or curve.sample == CARRIED:
            return []
        unstable = curve.unstable(self._third(curve))
        return list(dict.fromkeys([*unstable[:1], *[batch for batch in unstable if batch >= WARM_UP][:1]]))

    def _third(self, curve: Curve) -> Curve | None:
        """Scheme 3's curve of the same setting, for a curve of scheme 4."""
        if curve.scheme != 4:
            return None
        wanted = replace(curve.series, scheme=3)
        return next((c for c in self.curves if c.scheme == 3 and c.seed == curve.seed and c.series == wanted), None)


def _rounded(column: list[Any], digits: int) -> list[float | None]:
    return [significant(value, digits) for value in column]
