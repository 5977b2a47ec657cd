"""Train, measure and record, fleet by fleet. A part that has a record is not done again."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from traits import measures
from traits.plan import COPY, ROW, SYMBOLS, Job, Settings, copy_source, corpora, jobs
from unroll import Corpus, Experiment, train_fleet
from unroll.base import atomic_files
from unroll.engines import devices
from unroll.engines.choice import engine_of
from unroll.model.model import Model
from unroll.runs.folder import RunFolder
from unroll.sweep import measuring
from unroll.training import fleet
from unroll.training.events import Ended, Evaluated

# While a model learns, it is asked for answers from this batch on, in a fourth of that text.
LEARNING_FROM, LEARNING_SHARE = 100, 4
LEARNING = "copied.jsonl"
Line = dict[str, Any]


def train(settings: Settings, data: Path, out: Path, runs: Path, device: str = "auto") -> None:
    """Do all parts, each with its record in `out`; trainings are kept in `runs`, so that nothing is done twice."""
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    wanted = jobs(settings)
    corpus_of = corpora(settings, data)
    texts = [corpus_of[job.corpus, job.k2] for job in wanted]
    experiments = [job.experiment(settings, corpus, device) for job, corpus in zip(wanted, texts, strict=True)]
    _pace(settings, wanted, experiments, texts, out)
    for chosen in fleet.groups(experiments, [corpus.unique for corpus in texts]):
        part = Part(settings, [wanted[i] for i in chosen], [experiments[i] for i in chosen], [texts[i] for i in chosen])
        part.record(out, runs)
    print(f"{time.perf_counter() - began:6.1f} s  all", flush=True)


class Part:
    """The trainings of one fleet."""

    def __init__(
        self, settings: Settings, jobs: Sequence[Job], experiments: Sequence[Experiment], texts: Sequence[Corpus]
    ) -> None:
        self.settings = settings
        self.jobs = jobs
        self.experiments = experiments
        self.texts = texts
        self.k2 = jobs[0].k2
        self.copies = jobs[0].corpus == COPY

    @property
    def name(self) -> str:
        """Which texts, which window, which positions carry a loss."""
        texts = "-".join(sorted({job.corpus for job in self.jobs}))
        scored = "last" if self.experiments[0].scheme.scored < self.k2 else "every"
        return f"{texts}-k2_{self.k2}-{scored}-position"

    def record(self, out: Path, runs: Path) -> None:
        """Train, measure and write the record."""
        path = out / f"{self.name}.json"
        if _is_there(path, self.settings):
            return
        folders = [RunFolder(runs / experiment.identity[:16]) for experiment in self.experiments]
        began = time.perf_counter()
        self._train(folders)
        trained = time.perf_counter()
        model = self._model(folders)
        lines = self._answers(model, folders) if self.copies else self._on_texts(model)
        seconds = {"training": round(trained - began, 1), "measuring": round(time.perf_counter() - trained, 1)}
        statuses = [folder.status for folder in folders]
        _write(
            path,
            {
                "kind": "copy" if self.copies else "text",
                "settings": asdict(self.settings),
                "fleet": len(folders),
                "seconds": seconds,
                **{name: statuses[0][name] for name in ("device", "kernel", "torch", "unroll")},
                "runs": [
                    asdict(job)
                    | {"title": text.name, "sha256": text.sha256, "state": status["state"], "batch": status["batch"]}
                    | {"curve": _curve(folder.metrics)}
                    | line
                    for job, text, status, folder, line in zip(
                        self.jobs, self.texts, statuses, folders, lines, strict=True
                    )
                ],
            },
        )
        print(f"{path.name}: {seconds}", flush=True)

    def _train(self, folders: Sequence[RunFolder]) -> None:
        """Train what has not ended, from the last checkpoints."""
        for folder, experiment, text in zip(folders, self.experiments, self.texts, strict=True):
            folder.begin(experiment, text.vocabulary)
        if all(folder.has_ended() for folder in folders):
            return
        began = time.perf_counter()
        asked = 0
        for event in train_fleet(self.experiments, self.texts, [folder.path for folder in folders], resume=True):
            if isinstance(event, Ended) and event.status["state"] == "stopped":
                print(f"{self.jobs[event.run]} stopped: {event.status['reason']}", flush=True)
            if not isinstance(event, Evaluated) or event.learner.count == asked:
                continue
            asked = event.learner.count
            print(f"{time.perf_counter() - began:6.1f} s  {self.name}, batch {asked:,}", flush=True)
            if self.copies and asked >= min(LEARNING_FROM, self.settings.batches):
                for folder, line in zip(folders, self._copied(event.learner.model, briefly=True), strict=True):
                    # Beside the run, so that it is not lost where the training is killed.
                    atomic_files.append(
                        folder.path / LEARNING, json.dumps(atomic_files.finite({"batch": asked} | line))
                    )

    def _model(self, folders: Sequence[RunFolder]) -> Model:
        """The trained runs, stacked as the fleet that they were."""
        values = [atomic_files.unseal(folder.path / "weights.safetensors")[0] for folder in folders]
        where = devices.find(self.experiments[0].device)
        sizes = [text.unique for text in self.texts]
        return Model.stacked(self.experiments, sizes, values, engine_of(where, self.experiments[0].kernel))

    def _on_texts(self, model: Model) -> list[Line]:
        """Positions and wrong tokens in the test sets, each cut to the length of the shortest."""
        s = self.settings
        tests = [text.test_ids(0).astype(np.int64) for text in self.texts]
        ids = np.stack([test[: min(map(len, tests))] for test in tests])
        positions = measures.replaced_positions(ids.shape[1], s.places, s.k2, s.reach)
        counts = {id(text): np.bincount(text.train_ids(0), minlength=text.unique) for text in _once(self.texts)}
        wrong = [
            measures.wrong_tokens(tokens[positions], counts[id(text)].astype(np.float64), seed=0)
            for tokens, text in zip(ids, self.texts, strict=True)
        ]
        ids_MN, replaced_R, wrong_MR = (torch.from_numpy(x).to(model.device) for x in (ids, positions, np.stack(wrong)))
        nll_MP = measures.position_nll(model, ids_MN, s.reach)
        excess = measures.excess(model, ids_MN, replaced_R, wrong_MR, s.k2, s.reach)
        return [
            {
                "tokens": ids.shape[1] - s.reach,
                "places": len(positions),
                "positions": _rounded(nll_MP[m]),
                "excess": {name: _rounded(excess_MRD[m].mean(0)) for name, excess_MRD in excess.items()},
                "error_of_sum": {name: _error(excess_MRD[m].sum(1)) for name, excess_MRD in excess.items()},
            }
            for m in range(len(self.jobs))
        ]

    def _answers(self, model: Model, folders: Sequence[RunFolder]) -> list[Line]:
        """The answers by distance, and how many were copied while the model learnt."""
        by_run = self._copied(model, briefly=False)
        for answers, folder in zip(by_run, folders, strict=True):
            learning = folder.path / LEARNING
            lines = [json.loads(line) for line in learning.read_text("utf-8").splitlines()] if learning.exists() else []
            # A training that was killed wrote lines of a batch twice.
            answers |= {"symbols": SYMBOLS, "learning": list({line["batch"]: line for line in lines}.values())}
        return by_run

    def _copied(self, model: Model, briefly: bool) -> list[Line]:
        """The answers' mean nll, a run: by distance; or, briefly, within and beyond the window, for a part of them."""
        rows = max(1, self.settings.copy_rows // (LEARNING_SHARE if briefly else 1))
        text, positions, distances = _questions(self.k2, rows)
        ids_N = torch.from_numpy(self.texts[0].vocabulary.encode(text).astype(np.int64)).to(model.device)
        positions_A = torch.from_numpy(positions).to(model.device)
        nll = measures.answer_nll(model, ids_N, positions_A, self.k2, ROW * self.k2)
        groups = {str(distance): distances == distance for distance in np.unique(distances)}
        if briefly:
            groups = {"within": distances <= self.k2, "beyond": distances > self.k2}
        return [
            {
                "answers": {group: int(those_A.sum()) for group, those_A in groups.items()},
                "nll": {
                    name: {group: round(float(nll_MA[m, those_A].mean()), 5) for group, those_A in groups.items()}
                    for name, nll_MA in nll.items()
                },
            }
            for m in range(len(self.jobs))
        ]


@cache
def _questions(k2: int, rows: int) -> tuple[str, measures.Integers, measures.Integers]:
    """A text of the copy source in this many rows, its answers' positions, and how far back their symbols are."""
    text = copy_source(k2).text(ROW * k2 * rows, seed=0)  # training's seeds begin at 1
    return text, *measures.known_answers(copy_source(k2), text, k2, ROW * k2)


def _pace(
    settings: Settings, wanted: Sequence[Job], experiments: Sequence[Experiment], texts: Sequence[Corpus], out: Path
) -> None:
    """Time a batch with a loss everywhere and with one at the end: as many runs side by side in both."""
    path = out / "pace.json"
    if _is_there(path, settings):
        return
    began = time.perf_counter()
    paces = {}
    for training in ("multi-loss", "single-loss"):
        indices = [i for i, job in enumerate(wanted) if job.corpus != COPY and job.training == training]
        sizes = [texts[i].unique for i in indices]
        (chosen, *_) = fleet.groups([experiments[i] for i in indices], sizes)
        side_by_side = [indices[i] for i in chosen]
        pace = measuring.pace([experiments[i] for i in side_by_side], [texts[i] for i in side_by_side], lambda: None)
        paces[training] = {"runs": pace.runs, "milliseconds": pace.milliseconds}
    where = devices.describe(devices.find(experiments[0].device))
    _write(path, {"kind": "pace", "settings": asdict(settings), "device": where, "pace": paces, "runs": []})
    print(f"{path.name}: {paces}, {time.perf_counter() - began:.1f} s", flush=True)


def _is_there(path: Path, settings: Settings) -> bool:
    """Whether a record is written; a record of other settings is refused, not replaced."""
    if not path.exists():
        return False
    recorded = json.loads(path.read_text("utf-8"))["settings"]
    if recorded != json.loads(json.dumps(asdict(settings))):
        raise SystemExit(f"{path} was made with other settings: {recorded}. Delete it, or choose another --out.")
    print(f"{path.name} is there", flush=True)
    return True


def _once(texts: Sequence[Corpus]) -> list[Corpus]:
    return list({id(text): text for text in texts}.values())


def _curve(metrics: Sequence[Line]) -> list[list[Any]]:
    """Batch, perplexity windowed, perplexity progressive."""
    return [[m["batch"], m["perplexity"].get("windowed"), m["perplexity"].get("progressive")] for m in metrics]


def _error(values: torch.Tensor) -> float:
    """The standard error of a mean."""
    return round(float(values.std() / len(values) ** 0.5), 5)


def _rounded(values: torch.Tensor) -> list[float]:
    return [round(value, 5) for value in values.tolist()]


def _write(path: Path, record: Line) -> None:
    """Write one line a run; the file is whole or absent."""
    runs = ",\n".join(json.dumps(atomic_files.finite(run)) for run in record["runs"])
    head = json.dumps({name: value for name, value in record.items() if name != "runs"})
    atomic_files.write(path, f'{head[:-1]}, "runs": [\n{runs}\n]}}\n'.encode())
