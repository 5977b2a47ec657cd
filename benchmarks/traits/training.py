"""Fleet by fleet: trained, measured, recorded. Whatever is recorded is not done again."""

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

# While a model learns, answers are asked for from this batch on, in one part of so many of that text.
LEARNING_FROM, LEARNING_SHARE = 100, 4
LEARNING = "copied.jsonl"
Line = dict[str, Any]


def train(settings: Settings, data: Path, out: Path, runs: Path, device: str = "auto") -> None:
    """All parts, each with its record in `out`; trainings are kept in `runs`, so that nothing is done twice."""
    began = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    wanted, texts = jobs(settings), corpora(settings, data)
    own = [texts[job.corpus, job.k2] for job in wanted]
    experiments = [job.experiment(settings, corpus, device) for job, corpus in zip(wanted, own, strict=True)]
    _pace(settings, wanted, experiments, own, out)
    for chosen in fleet.groups(experiments, [corpus.unique for corpus in own]):
        part = Part(settings, [wanted[i] for i in chosen], [experiments[i] for i in chosen], [own[i] for i in chosen])
        part.record(out, runs)
    print(f"{time.perf_counter() - began:6.1f} s  all", flush=True)


class Part:
    """The trainings of one fleet."""

    def __init__(
        self, settings: Settings, own: Sequence[Job], experiments: Sequence[Experiment], texts: Sequence[Corpus]
    ) -> None:
        self.settings, self.jobs, self.experiments, self.texts = settings, own, experiments, texts
        self.k2, self.copies = own[0].k2, own[0].corpus == COPY

    @property
    def name(self) -> str:
        """Which texts, which window, which positions carry a loss."""
        texts = "-".join(sorted({job.corpus for job in self.jobs}))
        scored = "last" if self.experiments[0].scheme.scored < self.k2 else "every"
        return f"{texts}-k2_{self.k2}-{scored}-position"

    def record(self, out: Path, runs: Path) -> None:
        """Train, measure, write."""
        path = out / f"{self.name}.json"
        if _is_there(path, self.settings):
            return
        folders = [RunFolder(runs / experiment.identity[:16]) for experiment in self.experiments]
        began = time.perf_counter()
        self._train(folders)
        trained = time.perf_counter()
        model = self._model(folders)
        found = self._answers(model, folders) if self.copies else self._on_texts(model)
        seconds = {"training": round(trained - began, 1), "measuring": round(time.perf_counter() - trained, 1)}
        status = [folder.status for folder in folders]
        _write(
            path,
            {
                "kind": "copy" if self.copies else "text",
                "settings": asdict(self.settings),
                "fleet": len(folders),
                "seconds": seconds,
                **{name: status[0][name] for name in ("device", "kernel", "torch", "unroll")},
                "runs": [
                    asdict(job)
                    | {"title": text.name, "sha256": text.sha256, "state": own["state"], "batch": own["batch"]}
                    | {"curve": _curve(folder.metrics)}
                    | line
                    for job, text, own, folder, line in zip(self.jobs, self.texts, status, folders, found, strict=True)
                ],
            },
        )
        print(f"{path.name}: {seconds}", flush=True)

    def _train(self, folders: Sequence[RunFolder]) -> None:
        """What has not ended goes on from the last checkpoints."""
        for folder, experiment, text in zip(folders, self.experiments, self.texts, strict=True):
            folder.begin(experiment, text.vocabulary)
        if all(folder.has_ended() for folder in folders):
            return
        began, asked = time.perf_counter(), 0
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
        """Positions and wrong tokens in the test sets; of differently long ones, as much as the shortest has."""
        s = self.settings
        tests = [text.test_ids(0).astype(np.int64) for text in self.texts]
        ids = np.stack([test[: min(map(len, tests))] for test in tests])
        places = measures.places(ids.shape[1], s.places, s.k2, s.reach)
        counts = {id(text): np.bincount(text.train_ids(0), minlength=text.unique) for text in _once(self.texts)}
        wrong = [
            measures.wrong_tokens(own[places], counts[id(text)].astype(np.float64), seed=0)
            for own, text in zip(ids, self.texts, strict=True)
        ]
        ids_MN, places_R, wrong_MR = (torch.from_numpy(x).to(model.device) for x in (ids, places, np.stack(wrong)))
        nll_MP = measures.position_nll(model, ids_MN, s.reach)
        excess = measures.excess(model, ids_MN, places_R, wrong_MR, s.k2, s.reach)
        return [
            {
                "tokens": ids.shape[1] - s.reach,
                "places": len(places),
                "positions": _rounded(nll_MP[m]),
                "excess": {name: _rounded(excess_MRD[m].mean(0)) for name, excess_MRD in excess.items()},
                "error_of_sum": {name: _error(excess_MRD[m].sum(1)) for name, excess_MRD in excess.items()},
            }
            for m in range(len(self.jobs))
        ]

    def _answers(self, model: Model, folders: Sequence[RunFolder]) -> list[Line]:
        """The answers by distance, and what was seen of them while the model learnt."""
        found = self._copied(model, briefly=False)
        for own, folder in zip(found, folders, strict=True):
            held = folder.path / LEARNING
            lines = [json.loads(line) for line in held.read_text("utf-8").splitlines()] if held.exists() else []
            # A training that was killed says some batches twice.
            own |= {"symbols": SYMBOLS, "learning": list({line["batch"]: line for line in lines}.values())}
        return found

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
    """A text of the copy source in so many rows, where its answers stand, and how far before them their symbols."""
    text = copy_source(k2).text(ROW * k2 * rows, seed=0)  # training's seeds begin at 1
    return text, *measures.known_answers(copy_source(k2), text, k2, ROW * k2)


def _pace(
    settings: Settings, wanted: Sequence[Job], experiments: Sequence[Experiment], texts: Sequence[Corpus], out: Path
) -> None:
    """What a batch costs with a loss everywhere and with one at the end: as many runs side by side in both."""
    path = out / "pace.json"
    if _is_there(path, settings):
        return
    began, found = time.perf_counter(), {}
    for training in ("multi-loss", "single-loss"):
        own = [i for i, job in enumerate(wanted) if job.corpus != COPY and job.training == training]
        sizes = [texts[i].unique for i in own]
        (chosen, *_) = fleet.groups([experiments[i] for i in own], sizes)
        pace = measuring.pace([experiments[own[i]] for i in chosen], [texts[own[i]] for i in chosen], lambda: None)
        found[training] = {"runs": pace.runs, "milliseconds": pace.milliseconds}
    where = devices.describe(devices.find(experiments[0].device))
    _write(path, {"kind": "pace", "settings": asdict(settings), "device": where, "pace": found, "runs": []})
    print(f"{path.name}: {found}, {time.perf_counter() - began:.1f} s", flush=True)


def _is_there(path: Path, settings: Settings) -> bool:
    """Whether a record is written; one of other settings is not written over."""
    if not path.exists():
        return False
    held = json.loads(path.read_text("utf-8"))["settings"]
    if held != json.loads(json.dumps(asdict(settings))):
        raise SystemExit(f"{path} was made with other settings: {held}. Delete it, or choose another --out.")
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
    """One line a run; the file is whole or absent."""
    runs = ",\n".join(json.dumps(atomic_files.finite(run)) for run in record["runs"])
    head = json.dumps({name: value for name, value in record.items() if name != "runs"})
    atomic_files.write(path, f'{head[:-1]}, "runs": [\n{runs}\n]}}\n'.encode())
