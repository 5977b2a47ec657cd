"""docs/paper.md: prose written by hand, and between markers what the records say. Writing it again keeps the prose.

    python -m unroll.studies.paper.page RECORDS DOCS      RECORDS holds records/*.json; figures go to DOCS/paper

A marked block is `<!-- unroll: NAME -->` … `<!-- end -->`: all between is replaced, all else is left as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from unroll.base import atomic_files
from unroll.base.errors import InputError
from unroll.base.printable import one_line
from unroll.studies.paper import (
    causes,
    instability,
    instability_picture,
    literature,
    pictures,
    records,
    stranger,
    verdicts_in_words,
)
from unroll.studies.paper.claims import judge
from unroll.studies.paper.claims.verdict import Table, Verdict
from unroll.studies.paper.figures import ARCHITECTURES, PAPER, PAPERS_DEVICE, PAPERS_MS, SMALLER, trainings
from unroll.studies.paper.records import Curve, Record, Time

Records = Mapping[str, Record]
BLOCK = re.compile(r"<!-- unroll: (?P<name>[a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)
START = """\
# The paper, reproduced

De Boom, Demeester and Dhoedt, *Character-level Recurrent Neural Networks in Practice: Comparing Training and Sampling
Schemes*, trained 222 models to compare four schemes. Here they are trained again; every verdict, table and picture is
drawn from the records in `results/paper` by `python -m unroll.studies.paper.page results/paper docs`, without a GPU.

<!-- unroll: summary -->
<!-- end -->

## The claims

Each claim says several things, and each of them is a number and a threshold. All hold: the claim *holds*; some: *holds
in part*; none: *does not hold*. Where another seed might have turned a part, it *cannot be told*. The thresholds were
fixed before there were records, and are argued where they are defined, in `src/unroll/studies/paper/claims`.

<!-- unroll: claims -->
<!-- end -->

What intervals over seeds changed:

<!-- unroll: changes -->
<!-- end -->

## The figures

Perplexity of the test set, geometric means and bands over seeds where there are several. A ring marks where a run
first stands above 1.1 × its lowest so far (or, under scheme 4, above 1.1 × scheme 3's at the same batch); the first 100
batches, in which nearly every run jumps, are not marked. A rise at the end that scheme 1 shares is overfitting.

<!-- unroll: figures -->
<!-- end -->

## Why conditional training looks unstable

<!-- unroll: instability -->
<!-- end -->

## By a stranger's route

<!-- unroll: stranger -->
<!-- end -->

## What lies behind unexpected verdicts

<!-- unroll: causes -->
<!-- end -->

## The timing table

<!-- unroll: timing -->
<!-- end -->

## The evidence, claim by claim

<!-- unroll: evidence -->
<!-- end -->

## Provenance

<!-- unroll: provenance -->
<!-- end -->
"""


def write_docs(records_folder: str | Path, docs_folder: str | Path) -> list[Path]:
    """Bring docs/paper.md, docs/schemes.md and the pictures in docs/paper up to date; return the files written."""
    measured = records.read(records_folder)
    docs = Path(docs_folder)
    if not measured:
        raise InputError(f"{records_folder} has no records. `unroll reproduce` writes them to its --out.")
    (docs / "paper").mkdir(parents=True, exist_ok=True)
    drawn = [path for record in measured.values() if (path := pictures.save(record, docs / "paper"))]
    instability_drawn = instability_picture.save(instability.readings(measured), docs / "paper")
    page = docs / "paper.md"
    verdicts = judge(measured)
    text = page.read_text("utf-8") if page.exists() else START
    compared = stranger.read(records_folder)
    stranger_drawn = stranger.save(compared, docs / "paper") if compared else None
    contents = blocks(measured, verdicts, drawn, compared)
    written = [*drawn, *filter(None, [instability_drawn, stranger_drawn]), _write(page, fill(text, contents))]
    schemes = docs / "schemes.md"
    if schemes.exists():
        written.append(_write(schemes, fill(schemes.read_text("utf-8"), {"literature": literature.markdown()})))
    return written


def fill(text: str, contents: Mapping[str, str]) -> str:
    """Renew the marked blocks of a page; a block without new contents stays as it is."""

    def renewed(block: re.Match[str]) -> str:
        name = block["name"]
        return f"<!-- unroll: {name} -->\n{contents[name]}\n<!-- end -->" if name in contents else block[0]

    return BLOCK.sub(renewed, text)


def blocks(
    measured: Records,
    verdicts: Iterable[Verdict],
    drawn: Iterable[Path],
    compared: stranger.Comparison | None = None,
) -> dict[str, str]:
    """Every marked block of docs/paper.md."""
    verdicts = tuple(verdicts)
    return {
        "summary": _summary(measured, verdicts),
        "claims": _markdown(*verdicts_in_words.claims(verdicts)),
        "changes": _markdown(*verdicts_in_words.changes(verdicts)),
        "figures": "\n\n".join(
            f"![{pictures.titled(path.stem, measured[path.stem].scale)}](paper/{path.name})" for path in drawn
        ),
        "timing": timing_table(measured["timing"]) if "timing" in measured else "Not measured.",
        "instability": _instability(measured),
        "stranger": _stranger(compared),
        "causes": _causes(measured),
        "evidence": "\n\n".join(verdicts_in_words.evidence(v, lambda each: _table(each.evidence)) for v in verdicts),
        "provenance": _provenance(measured),
    }


def timing_table(record: Record) -> str:
    """The table side by side with the paper's: ms a training batch of one run / ms a sampled token."""
    if not record.times:
        return "Not measured."
    times = {(t.scheme, t.layers, t.hidden, t.fleet == 1): t for t in record.times}
    fleet = max(t.fleet for t in record.times)
    rows: list[list[str]] = []
    for scheme, papers in PAPERS_MS.items():
        way = "windowed_naive" if scheme <= 2 else "progressive"
        rows.append([f"scheme {scheme}, paper", *(f"{batch} / {token}" for batch, token in papers)])
        for alone, name in ((True, "here"), (False, f"here, {fleet} side by side"))[: 2 if fleet > 1 else 1]:
            times_of_row = [times.get((scheme, *architecture, alone)) for architecture in ARCHITECTURES]
            rows.append([f"scheme {scheme}, {name}", *(_ms(time, way) for time in times_of_row)])
    rolling = [_sample(times.get((1, *architecture, True)), "windowed") for architecture in ARCHITECTURES]
    first = record.times[0]
    fleet_words = f", and {fleet} runs side by side, a batch of one of them" if fleet > 1 else ""
    small = f"; models with γ divided by {SMALLER}" * (record.scale < 1)
    text = (
        "Milliseconds for one training batch of one run / one sampled token, English, k1 = 40. The paper: "
        f"{PAPERS_DEVICE}, one run. Here: {first.device}, {first.precision}; alone{fleet_words}{small}. "
        "Windowed sampling reads k2 tokens again for each new one, as in the paper; the last row is what "
        "`unroll sample` does."
    )
    columns = ("", *(f"r={r} γ={h}" for r, h in ARCHITECTURES))
    return f"{text}\n\n{_markdown(columns, [*rows, ['windowed token, rolling', *rolling]])}"


def _ms(time: Time | None, way: str) -> str:
    return f"{time.batch_ms:.3g} / {_sample(time, way)}" if time else "–"


def _sample(time: Time | None, way: str) -> str:
    return f"{time.sample_ms[way]:.3g}" if time and way in time.sample_ms else "–"


def _summary(measured: Records, verdicts: tuple[Verdict, ...]) -> str:
    papers = cost(measured, base=True)
    every = cost(measured)
    text = (
        f"{verdicts_in_words.counted(verdicts)} Of the paper's {len(trainings(PAPER))} trainings {papers[0]} are "
        f"in the records; they took {_duration(papers[1])} of training and {_duration(papers[2])} of evaluation. By "
        "the paper's own table its trainings took about 97 hours."
    )
    if every[0] == papers[0]:
        return text
    more = (
        f"With further seeds and the extras, {every[0]} trainings took {_duration(every[1])} and {_duration(every[2])}."
    )
    return f"{text} {more}"


def cost(measured: Records, base: bool = False) -> tuple[int, float, float]:
    """Count distinct trainings, and add up their seconds of training and of evaluation.

    `base` counts the paper's own trainings in their first seed. A fleet's seconds of training are already shared among
    its runs, its seconds of evaluation are not.
    """
    runs: dict[str, Curve] = {}
    for name, record in measured.items():
        for curve in record.curves:
            if not base or (name in PAPER and curve.seed == record.seeds[0]):
                runs[curve.identity] = curve
    training = sum(curve.points["seconds"][-1] for curve in runs.values() if curve.points["seconds"])
    return len(runs), training, sum(curve.evaluating / max(1, curve.fleet) for curve in runs.values())


def _duration(seconds: float) -> str:
    unit, name = (1, "s") if seconds < 120 else (60, "min") if seconds < 7200 else (3600, "h")
    return f"{seconds / unit:.1f} {name}"


def _instability(measured: Records) -> str:
    """Tables and a picture of scheme 4; the report shows it run by run."""
    runs = instability.readings(measured)
    if not any(run.apart for run in runs):
        return "Not measured."
    picture = "![Scheme 4: from zeros against from carried states](paper/instability.png)"
    tables = {title: table for title, table in instability.every_table(runs).items() if title != instability.BY_RUN}
    return "\n\n".join((instability.ABOUT, picture, *_titled(tables)))


def _stranger(compared: stranger.Comparison | None) -> str:
    """The same experiment by another implementation."""
    if not compared or not compared.runs:
        return "Not measured."
    picture = "![Scheme 4 in plain torch and in Unroll](paper/stranger.png)"
    return "\n\n".join((stranger.about(compared), picture, _table(stranger.in_numbers(compared.runs))))


def _causes(measured: Records) -> str:
    """The tables behind unexpected verdicts."""
    return "\n\n".join(_titled(causes.every_table(measured))) or "Not measured."


def _titled(tables: Mapping[str, Table]) -> list[str]:
    return [f"**{title}**\n\n{_table(table)}" for title, table in tables.items()]


def _table(table: Table) -> str:
    return _markdown(table.columns, [[_cell(c) for c in row] for row in table.rows])


def _cell(value: object) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _provenance(measured: Records) -> str:
    curves = [curve for record in measured.values() for curve in record.curves]
    corpora = {curve.corpus: curve for curve in curves}
    rows = [[curve.title, f"`{curve.sha256[:16]}`"] for _, curve in sorted(corpora.items())]
    facts = {
        "device": {c.device for c in curves},
        "precision": {c.precision for c in curves},
        "kernel": {c.kernel for c in curves},
        "runs side by side": {f"{c.fleet:2}" for c in curves},
        "version": {record.unroll for record in measured.values()},
    }
    files = [
        [
            name,
            str(len(r.curves)),
            ", ".join(map(str, r.seeds)),
            _cell(r.scale),
            str(sum(c.state == "stopped" for c in r.curves)),
        ]
        for name, r in measured.items()
    ]
    listed = "\n".join(f"- {name}: {', '.join(map(str.strip, sorted(values)))}" for name, values in facts.items())
    return "\n\n".join(
        (
            _markdown(("data set", "SHA-256 begins"), rows),
            listed,
            _markdown(("record", "curves", "seeds", "scale", "stopped"), files),
        )
    )


def _markdown(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(columns)
    lines = [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *map(list, rows))]
    return "\n".join(lines)


def _write(path: Path, text: str) -> Path:
    atomic_files.write(path, text.encode())
    return path


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python -m unroll.studies.paper.page RECORDS DOCS")
    for written in write_docs(*sys.argv[1:]):
        print(one_line(str(written)))
