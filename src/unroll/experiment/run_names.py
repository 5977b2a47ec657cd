"""The name of a run's folder, in one form for `unroll train`, sweeps and the paper's grid.

book-multi-loss-k1_20-k2_100-lstm1x512-dropout_0.25-seed0
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from unroll.experiment.experiment import Experiment


def run_name(
    corpus: str,
    procedure: str,
    k1: int,
    k2: int,
    shape: str,
    seed: int,
    varied: Iterable[tuple[str, object]] = (),
    ending: str = "",
    any_script: bool = False,
) -> str:
    """The parts of a name, joined; `varied` are settings by name and value.

    A name is safe in any system's folder: letters, digits, `_`, `.` and `-`, in ASCII unless in `any_script`.

    >>> run_name("a book", "conditional,k3=10", 20, 100, "gru2x64", 0, [("dropout", 0.25)])
    'a-book-conditional-k3-10-k1_20-k2_100-gru2x64-dropout_0.25-seed0'
    """
    words = [corpus, procedure, f"k1_{k1}", f"k2_{k2}", shape]
    words += [f"{name}_{value}" for name, value in varied] + [f"seed{seed}", ending]
    plain = re.sub(r"[^\w.]+", "-", "-".join(words), flags=0 if any_script else re.ASCII)
    return plain.strip("-.")


def shape_of(experiment: Experiment) -> str:
    """The cell, its layers and their units: lstm1x512."""
    return f"{experiment.cell}{experiment.layers}x{experiment.hidden}"
