"""docs/beyond.md: prose written by hand, and between markers what the records say. Writing it again keeps the prose.

python -m unroll.studies.beyond.page RECORDS DOCS      RECORDS holds records/*.json; figures go to DOCS/beyond
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from unroll.base import atomic_files
from unroll.base.errors import InputError
from unroll.base.printable import one_line
from unroll.studies.beyond import ngrams, pictures, records, split_tables, tables
from unroll.studies.beyond.ngrams import Counted
from unroll.studies.beyond.parts import PARTS
from unroll.studies.paper.claims.verdict import Table, table
from unroll.studies.paper.figures import CORPORA
from unroll.studies.paper.page import fill

NOTHING = "Not measured."
ALT = {
    "weights": "Perplexity by how many of the last positions carry a loss",
    "states": "Perplexity by where a window's first state comes from",
    "positions": "Nats a token that zeros cost above carried states, by position in the test set",
}


def write_docs(records_folder: str | Path, docs_folder: str | Path) -> list[Path]:
    """Bring docs/beyond.md and its pictures up to date; return the files written."""
    measured, counted = records.read(records_folder), ngrams.read(records_folder)
    docs = Path(docs_folder)
    page = docs / "beyond.md"
    if not measured and not counted:
        raise InputError(f"{records_folder} has no records. `unroll study beyond` writes them to its --out.")
    if not page.exists():
        raise InputError(f"{page} is not there: it is written by hand, and only its marked blocks are renewed.")
    (docs / "beyond").mkdir(parents=True, exist_ok=True)
    drawn = pictures.save(measured, docs / "beyond")
    atomic_files.write(page, fill(page.read_text("utf-8"), blocks(measured, counted, drawn)).encode())
    return [*drawn, page]


def blocks(measured: tables.Records, counted: Sequence[Counted], drawn: Sequence[Path]) -> dict[str, str]:
    """Every marked block."""
    shown = {path.stem: f"![{ALT.get(path.stem, path.stem)}](beyond/{path.name})" for path in drawn}
    crossed = tables.plane(measured, ("crossed",), "loss=equal,state=learned")
    return {
        "summary": _summary(measured),
        "best": tables.beyond_the_schemes(measured),
        "plane": _table(tables.plane(measured)),
        "misled": _table(tables.misled(measured)),
        "procedures": _table(tables.procedures(measured)),
        "origins": _table(tables.origins(measured)),
        "first-states": _table(tables.first_states(measured)),
        "resets": _table(tables.resets(measured)),
        "prefixes": _table(tables.prefixes(measured)),
        "crossed": _table(crossed),
        "spikes": _table(tables.spikes(measured)),
        "splits": _table(split_tables.splits(measured, counted)),
        "moving": _table(split_tables.moving(measured)),
        "ngrams": _table(split_tables.spread(counted)),
        **{name: shown.get(name, NOTHING) for name in ("weights", "states", "positions")},
    }


def _summary(measured: tables.Records) -> str:
    """How much of each part was trained, on what, and how long it took."""
    lines: list[tuple[str | int | None, ...]] = []
    for name, part in PARTS.items():
        asked = len(part.settings) * len(part.splits) * len(part.seeds) * len(CORPORA)
        record = measured.get(name)
        if not record:
            lines.append((name, f"0 of {asked}", *[None] * 5))
            continue
        devices = ", ".join(sorted({run.device for run in record.runs}))
        units = ", ".join(sorted({f"γ = {run.hidden}" for run in record.runs}))
        stopped = sum(run.state == "stopped" for run in record.runs)
        minutes = f"{record.seconds / 60:.1f}"
        count = f"{len(record.runs)} of {asked}"
        lines.append((name, count, units, f"{record.size.batches:,}", stopped, minutes, devices))
    columns = ("part", "runs", "model", "batches", "stopped", "minutes in all", "device")
    return _table(table(columns, lines))


def _table(made: Table) -> str:
    if not made.rows:
        return NOTHING
    rows = [["–" if cell is None else str(cell) for cell in row] for row in (made.columns, *made.rows)]
    rows.insert(1, ["---"] * len(made.columns))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python -m unroll.studies.beyond.page RECORDS DOCS")
    for path in write_docs(*sys.argv[1:]):
        print(one_line(str(path)))
