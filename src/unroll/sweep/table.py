"""A sweep's final table: one row for every run and procedure that was asked for, the same for the same runs.

No clocks and no dates stand in it, so that two sweeps can be compared byte for byte. The clocks of the same runs stand
in a table of their own, times.csv.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from unroll.base.errors import UnrollError
from unroll.experiment.experiment import Experiment
from unroll.experiment.settings import columns_of
from unroll.runs import selection
from unroll.runs.folder import RunFolder
from unroll.sweep.deduplicate import Training, natural, rank

# A column keeps the place that it had in earlier versions; that of a newer setting follows these.
FIRST = (
    "cell", "peepholes", "layers", "hidden", "dense", "dropout", "forget_bias", "optimiser", "learning_rate", "rows",
    "clip", "rotation", "shuffle", "precision", "batches", "seed", "split_seed", "test_tokens",
    "schedule", "warm_up", "weight_decay", "decay", "clip_norm",
)  # fmt: skip
RESULTS = ("state", "batch", "loss", "perplexity", "lowest", "lowest_batch", "reason")
TIMES = ("run", "state", "batch", "training_seconds", "evaluation_seconds", "side_by_side", "device")


def settings(described: type = Experiment) -> tuple[str, ...]:
    """The settings that have a column, in the table's order."""
    return tuple(sorted(columns_of(described), key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)))


SETTINGS = settings()
VALIDATION = "validation"  # the last perplexity of a validation set: a column only where there is one
COLUMNS = ("run", "corpus", "scheme", "training", "sample", "k1", "k2", *SETTINGS, *RESULTS)

Row = dict[str, Any]


def rows(trainings: Iterable[Training], folders: Mapping[str, RunFolder], failures: Mapping[str, str]) -> list[Row]:
    """The table, sorted."""
    by_request: dict[tuple[str, str, str], Row] = {}
    trainings = tuple(trainings)
    corpus = told_apart((e.title, e.sha256) for training in trainings for e in training.asked)
    for training in trainings:
        for asked in training.asked:
            row = _described(training.name, asked, corpus(asked.title, asked.sha256)) | _results(
                folders[training.name], asked, failures.get(training.name)
            )
            # Requests that differ in what does nothing (a GRU's peepholes) are one run, under the first one's name.
            by_request.setdefault((row["run"], row["sample"], row["corpus"]), row)
    return sorted(by_request.values(), key=_order)


def told_apart(texts: Iterable[tuple[str, str]]) -> Callable[[str, str], str]:
    """What to call a text, given its title and its hash: a hash stands behind a title that two texts have."""
    hashes: dict[str, set[str]] = {}
    for title, sha256 in texts:
        hashes.setdefault(title, set()).add(sha256)
    return lambda title, sha256: f"{title} ({sha256[:8]})" if len(hashes[title]) > 1 else title


def _order(row: Row) -> tuple[Any, ...]:
    """By corpus, scheme, k2, k1 and shape; then by name."""
    scheme = (row["scheme"] or math.inf, row["training"], rank(row["sample"]))
    return row["corpus"], *scheme, row["k2"], row["k1"], row["layers"], row["hidden"], natural(row["run"])


def _described(name: str, asked: Experiment, corpus: str) -> Row:
    s = asked.scheme
    words = {"run": name, "corpus": corpus, "scheme": s.number, "training": s.training, "sample": s.sample}
    return words | {"k1": s.k1, "k2": s.k2} | {setting: getattr(asked, setting) for setting in SETTINGS}


def _results(folder: RunFolder, asked: Experiment, failure: str | None) -> Row:
    procedure = asked.scheme.sample
    nothing: Row = dict.fromkeys(RESULTS)
    try:
        # A run that has ended is a result, whatever befell its fleet afterwards.
        if failure is not None and not folder.has_ended():
            return nothing | {"state": "failed", "reason": failure}
        status, lines = folder.status, folder.metrics
        # A perplexity too large for a float stands as null in the metrics.
        scores = [(math.inf if p is None else p, m["batch"]) for m in lines for p in [m["perplexity"][procedure]]]
        chosen = selection.best(lines, asked)
        loss = lines[-1]["loss"] if lines else None
    except UnrollError as error:
        return nothing | {"state": "failed", "reason": " ".join(str(error).split("\n"))}
    lowest = min(scores, default=(None, None))
    beside: Row = {}
    if selection.chosen_on(asked) == selection.VALIDATION_SET:
        # The test set's perplexity where the validation set's is lowest; and the last one, by which runs are compared.
        lowest = (chosen.test_perplexity, chosen.batch) if chosen else (None, None)
        last = selection.point_of(lines[-1], asked).perplexity if lines else None
        beside = {VALIDATION: last}
    return beside | {
        "state": status["state"],
        "batch": status["batch"],
        "loss": loss,
        "perplexity": scores[-1][0] if scores else None,
        "lowest": lowest[0],
        "lowest_batch": lowest[1],
        "reason": status.get("reason"),
    }


def best(table: Iterable[Row]) -> dict[str, Row]:
    """The row with the lowest last perplexity, for each corpus: across corpora they cannot be compared.

    It is the validation set's perplexity, or that of the test set where there is none.
    """
    best_of: dict[str, Row] = {}
    for row in table:
        if row["perplexity"] is not None and (
            row["corpus"] not in best_of or compared(row) < compared(best_of[row["corpus"]])
        ):
            best_of[row["corpus"]] = row
    return best_of


def compared(row: Row) -> float:
    """The perplexity by which runs are compared."""
    return float(row["perplexity"] if row.get(VALIDATION) is None else row[VALIDATION])


def best_mark(row: Row) -> str:
    """What stands behind that row: one run is one seed, so it is not called the best."""
    return f"  ← lowest on the {selection.VALIDATION_SET if VALIDATION in row else selection.TEST_SET}"


def times(names: Iterable[str], folders: Mapping[str, RunFolder]) -> list[Row]:
    """How long each run that was trained took, by its name in the table. What a fleet took is shared among its runs."""
    found: list[Row] = []
    for name in dict.fromkeys(names):
        status: dict[str, Any] = {}
        with suppress(UnrollError):  # the table says what is wrong with it
            status = folders[name].status
        if "seconds" not in status:
            continue
        fleet = max(status.get("fleet") or 1, 1)
        evaluation = round((status.get("evaluating") or 0.0) / fleet, 3)
        seconds = {"training_seconds": status["seconds"], "evaluation_seconds": evaluation}
        state = {"run": name, "state": status["state"], "batch": status["batch"]}
        found.append({**state, **seconds, "side_by_side": fleet, "device": status.get("device")})
    return found


def to_csv(table: Iterable[Row], columns: Sequence[str] = COLUMNS) -> bytes:
    """table.csv: numbers in full; with a column more where a run has a validation set."""
    text, table = io.StringIO(), list(table)
    columns = (*columns, VALIDATION) if any(VALIDATION in row for row in table) else columns
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in table)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def to_json(table: Iterable[Row]) -> bytes:
    """table.json: the same."""
    return (json.dumps([_finite(row) for row in table], indent=1) + "\n").encode()


def _finite(row: Row) -> Row:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
