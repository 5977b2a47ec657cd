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
        self._places: dict[str, int] = {}

    def place(self, curve: Curve, name: str | None = None) -> int:
        """A curve's number; the same curve in two figures has one, with both names."""
        key = repr(curve) + repr(curve.points)
        if key not in self._places:
            self._places[key] = len(self.curves)
            self.curves.append(curve)
            self.names.append([])
        place = self._places[key]
        if name is not None and name not in self.names[place]:
            self.names[place].append(name)
        return place

    def facts(self) -> tuple[list[dict[str, Any]], list[list[int]]]:
        """All curves for the page, and the grids of batches that they share."""
        grids: list[list[int]] = []
        found = []
        for curve, names in zip(self.curves, self.names, strict=True):
            batches = curve.points["batch"]
            if batches not in grids:
                grids.append(batches)
            facts = {f.name: getattr(curve, f.name) for f in fields(curve) if f.name != "points"}
            columns = {name: column for name, column in curve.points.items() if name not in SHARED}
            found.append(
                facts
                | {"name": ", ".join(names), "unstable": self._unstable(curve), "grid": grids.index(batches)}
                | {name: _rounded(column, DIGITS.get(name, 6)) for name, column in columns.items()}
            )
        return found, grids

    def _unstable(self, curve: Curve) -> list[int]:
        """The first unstable batch, and the first from WARM_UP on; conditional training is held to scheme 3 too."""
        if not curve.scored or curve.sample == CARRIED:
            return []
        found = curve.unstable(self._beside(curve))
        return list(dict.fromkeys([*found[:1], *[batch for batch in found if batch >= WARM_UP][:1]]))

    def _beside(self, curve: Curve) -> Curve | None:
        if curve.scheme != 4:
            return None
        wanted = replace(curve.series, scheme=3)
        return next((c for c in self.curves if c.scheme == 3 and c.seed == curve.seed and c.series == wanted), None)


def _rounded(column: list[Any], digits: int) -> list[float | None]:
    return [significant(value, digits) for value in column]
