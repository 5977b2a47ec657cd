"""Does a faster precision train as well? Runs in each, the same seeds, and a verdict.

    python benchmarks/parity.py train --data FOLDER --precision bfloat16               records in results/parity
    python benchmarks/parity.py train --data FOLDER --precision bfloat16 --device cpu  records in results/parity/cpu
    python benchmarks/parity.py train --data FOLDER --precision float32 --small        what those are held to, on a GPU
    python benchmarks/parity.py judge                                                  anywhere: tables and verdicts

The runs: k1 = 40, schemes 1 and 4, three seeds, the paper's four corpora; r=1 γ=512 and 12,800 batches. The runs of a
CPU are small: γ=128 and 2,400 batches, a process and a thread each. The rule: the mean difference in log-perplexity
from float32, over corpora and schemes, is below one pooled standard deviation between seeds at every evaluation point
after batch 200. With three seeds a side the means themselves scatter by 0.8 of that deviation, so single corpora may
exceed it by chance: they are listed, not judged. Music overfits, so its best point counts as well as its last.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent.parent / "results" / "parity"
CORPORA = ("english", "finnish", "linux", "music")
SCHEMES = (1, 4)
SEEDS = (0, 1, 2)
K1 = 40
AFTER = 200
Run = tuple[str, int, int]  # corpus, scheme, seed


class Study(NamedTuple):
    """A comparison of precisions: where its records are, and how large its runs."""

    folder: Path
    hidden: int
    batches: int
    faster: tuple[str, ...]

    def path(self, precision: str, run: Run) -> Path:
        """The path of a run's record."""
        return self.folder / "{}-{}-scheme{}-seed{}.json".format(precision, *run)


GPU = Study(RESULTS, 512, 12800, ("tf32", "bfloat16"))
CPU = Study(RESULTS / "cpu", 128, 2400, ("bfloat16",))


def train(study: Study, data: Path, precision: str, corpora: tuple[str, ...], device: str) -> None:
    """Train the runs of these corpora and write their measurements."""
    from unroll import Corpus
    from unroll.training.fleet import why_not

    study.folder.mkdir(parents=True, exist_ok=True)
    left = list(product(corpora, SCHEMES, SEEDS))
    if device == "cpu":
        left.sort(key=lambda run: -run[1])  # scheme 4, whose runs take longest, first
        with get_context("spawn").Pool(os.cpu_count()) as pool:
            for _ in pool.imap_unordered(partial(_train, study, data, precision, device), [[run] for run in left]):
                pass
        return
    sizes = {name: Corpus.open(data / f"{name}.txt").unique for name in corpora}
    while left:
        chosen: list[Run] = []
        for run in left:  # as many as may share a fleet
            together = [sizes[c] for c, _, _ in [*chosen, run]]
            if not why_not([_experiment(study, precision, device)] * len(together), together):
                chosen.append(run)
        left = [run for run in left if run not in chosen]
        _train(study, data, precision, device, chosen)


def _experiment(study: Study, precision: str, device: str, scheme: int = 1, seed: int = 0) -> Any:
    from dataclasses import replace

    from unroll import SCHEMES, Experiment

    sizes = {"hidden": study.hidden, "batches": study.batches, "threads": 1 if device == "cpu" else None}
    return Experiment(precision=precision, device=device, seed=seed, scheme=replace(SCHEMES[scheme], k1=K1), **sizes)


def _train(study: Study, data: Path, precision: str, device: str, chosen: list[Run]) -> None:
    """Train runs side by side."""
    import torch

    import unroll
    from unroll.engines import devices
    from unroll.runs.folder import RunFolder
    from unroll.training.events import Evaluated

    texts = [unroll.Corpus.open(data / f"{corpus}.txt") for corpus, _, _ in chosen]
    experiments = [_experiment(study, precision, device, scheme, seed) for _, scheme, seed in chosen]
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder, "{}-{}-{}".format(*run)) for run in chosen]
        began = time.perf_counter()
        for event in unroll.train_fleet(experiments, texts, outs):
            if isinstance(event, Evaluated) and event.run == 0:
                print(f"{time.perf_counter() - began:6.1f} s  {chosen[0]} {event.metrics}", flush=True)
        for run, text, out in zip(chosen, texts, outs, strict=True):
            run_folder = RunFolder(out)
            record = {
                "corpus": run_folder.experiment.title or run[0], "scheme": run[1], "seed": run[2],
                "precision": precision, "status": run_folder.status, "metrics": run_folder.metrics,
                "sha256": text.sha256, "device": devices.describe(torch.device(device)), "multiplied": _by(device),
                "wall_seconds": round(time.perf_counter() - began, 1),
            }  # fmt: skip
            study.path(precision, run).write_text(json.dumps(record) + "\n")


def _by(device: str) -> str:
    """The processor of a CPU's record, and whether it has a matrix unit."""
    if device != "cpu":
        return device
    from llvmlite import binding

    from unroll.engines.cpu import amx

    return binding.get_host_cpu_name() + (", matrix unit" if amx.available() else "")


def curves(study: Study, precision: str) -> dict[Run, dict[int, float]]:
    """The logarithm of each run's perplexity under its scheme's own procedure, by batch."""
    by_run = {}
    for run in product(CORPORA, SCHEMES, SEEDS):
        path = study.path(precision, run)
        if path.exists():
            procedure = "windowed" if run[1] == 1 else "progressive"
            lines = json.loads(path.read_text())["metrics"]
            by_run[run] = {m["batch"]: math.log(m["perplexity"][procedure]) for m in lines}
    return by_run


def compare(study: Study, precision: str) -> dict[str, Any]:
    """The differences from float32, point by point, and the verdict."""
    truth = curves(study, "float32")
    other = curves(study, precision)
    groups = sorted({key[:2] for key in truth} & {key[:2] for key in other})
    points = sorted(set.intersection(*(set(c) for c in (*truth.values(), *other.values()))) if other else ())
    rows = []
    for point in [p for p in points if p > AFTER]:
        differences, variances, beyond = [], [], []
        for group in groups:
            a, b = ([side[(*group, seed)][point] for seed in SEEDS] for side in (truth, other))
            difference = statistics.mean(b) - statistics.mean(a)
            variance = (statistics.variance(a) + statistics.variance(b)) / 2
            differences.append(difference)
            variances.append(variance)
            if abs(difference) > math.sqrt(variance):
                beyond.append("{} scheme {}".format(*group))
        pooled = math.sqrt(statistics.mean(variances))
        rows.append({"batch": point, "difference": statistics.mean(differences), "pooled": pooled, "beyond": beyond})
    best = [
        statistics.mean(min(other["music", s, seed].values()) - min(truth["music", s, seed].values()) for seed in SEEDS)
        for s in SCHEMES
        if ("music", s) in groups
    ]
    holds = bool(rows) and all(abs(row["difference"]) < row["pooled"] for row in rows)
    return {"precision": precision, "groups": groups, "points": rows, "music_best": best, "holds": holds}


def table(study: Study) -> list[str]:
    """Final perplexities and their spread over seeds."""
    names = ("float32", *study.faster)
    lines = ["| corpus | scheme | " + " | ".join(names) + " |", "|---" * (2 + len(names)) + "|"]
    by_precision = {name: curves(study, name) for name in names}
    for corpus, scheme in product(CORPORA, SCHEMES):
        cells = []
        for by_run in by_precision.values():
            ends = [c[max(c)] for (*group, _), c in by_run.items() if group == [corpus, scheme]]
            has_spread = len(ends) > 1
            mean = math.exp(statistics.mean(ends)) if ends else math.nan
            cells.append(f"{mean:.4f} ± {100 * statistics.stdev(ends):.2f} %" if has_spread else "")
        lines.append(f"| {corpus} | {scheme} | " + " | ".join(cells) + " |")
    return lines


def draw(path: Path) -> None:
    """Draw all curves of the GPU: a panel a corpus and scheme, a colour a precision, a line a seed."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    colours = {"float32": "#222222", "tf32": "#1f5fa8", "bfloat16": "#c2452d"}
    figure = Figure(figsize=(13, 6.4), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 4, sharex=True)
    for (row, scheme), (column, corpus) in product(enumerate(SCHEMES), enumerate(CORPORA)):
        axes = panels[row][column]
        axes.set(xscale="log", yscale="log", title=f"{corpus}, scheme {scheme}")
        for precision, colour in colours.items():
            for (c, s, seed), curve in curves(GPU, precision).items():
                if (c, s) == (corpus, scheme):
                    label = precision if seed == 0 else None
                    ys = [math.exp(v) for v in curve.values()]
                    axes.plot(list(curve), ys, color=colour, linewidth=0.8, alpha=0.75, label=label)
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.grid(True, linewidth=0.3, alpha=0.5)
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.supxlabel("batches")
    figure.supylabel("perplexity of the test set")
    figure.savefig(path)


def verdict(study: Study) -> list[str]:
    """The table, and a line for each precision that was compared."""
    lines = [*table(study), ""]
    for precision in study.faster:
        if not curves(study, precision):
            continue
        v = compare(study, precision)
        worst = max(v["points"], key=lambda row: abs(row["difference"]) / row["pooled"])
        music = ", ".join(f"{100 * d:+.2f} %" for d in v["music_best"])
        lines.append(
            f"{v['precision']}: {'holds' if v['holds'] else 'does not hold'}. Worst point: batch {worst['batch']}, "
            f"mean difference {worst['difference']:+.4f}, pooled deviation {worst['pooled']:.4f}. "
            f"Music's best point: {music}."
        )
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "judge"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--corpora", default=",".join(CORPORA))
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--small", action="store_true", help="the runs of a CPU, on a GPU")
    asked = parser.parse_args()
    if asked.what == "train":
        chosen = CPU if asked.small or asked.device == "cpu" else GPU
        train(chosen, asked.data, asked.precision, tuple(asked.corpora.split(",")), asked.device)
    else:
        print("\n\n".join("\n".join(verdict(study)) for study in (GPU, CPU)))
