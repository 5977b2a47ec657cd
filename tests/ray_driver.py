"""The driver of a sweep in a process of its own, so that it can be killed: each report is a line of JSON.

    python ray_driver.py FOLDER TEXT LAUNCHER

24 runs of hidden 8 in six fleets of four; what the folder holds already is gone on with.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from unroll import Corpus, Experiment, grid
from unroll.base.errors import UnrollError
from unroll.corpus.open_corpora import Library
from unroll.sweep.folder import SweepFolder
from unroll.sweep.sweep import sweep

MOST, SAVE_EVERY, BATCHES = 4, 30, 300


def experiments(text: str) -> list[Experiment]:
    """Two schemes, three k1, four seeds: 24 runs."""
    shape: dict[str, Any] = {"k2": 8, "hidden": 8, "dense": 16, "rows": 4, "batches": BATCHES, "dropout": 0.3}
    machine: dict[str, Any] = {"device": "cpu", "threads": 1, "kernel": "stacked", "evaluations": 8, "test_tokens": 60}
    asked = grid(corpus=text, scheme=[1, 4], k1=[2, 3, 4], seed=range(4), **shape, **machine)
    described = Corpus.open(text).described_in
    return [described(one) for one in asked]


def main(folder: str, text: str, launcher: str) -> int:
    """Drive the sweep, and say what happens."""
    place = SweepFolder(folder)
    asked = None if place.is_sweep() else experiments(text)
    try:
        for report in sweep(place, Library(), asked, MOST, SAVE_EVERY, launcher):
            said: dict[str, Any] = {"kind": type(report).__name__}
            for name in ("fleet", "run", "runs", "batch", "where", "reason", "message"):
                if hasattr(report, name):
                    said[name] = getattr(report, name)
            print(json.dumps(said), flush=True)
    except UnrollError as error:
        print(json.dumps({"kind": "raised", "error": type(error).__name__, "message": str(error)}), flush=True)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:4]))
