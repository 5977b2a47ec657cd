"""One training batch on the CPU, ours against nn.LSTM, side by side. Writes a record to results/bench, one a processor.

Both train the paper's model: one-hot tokens, LSTM (or --cell), a dense layer of 1024 with leaky ReLU, softmax, Adam.
Ours has peepholes and clips gradients at the gates; the peer, written as most people write it, has neither. Ours is
one run alone, and also four runs side by side, of whose step a fourth counts. The peer comes in three forms, and the
fastest of them counts. The floor is the matrix products of ours, alone, by torch. The peak is as many multiplications
and additions out of registers: no float32 code for vectors that multiplies as often can be faster. All that is float32.
Then follow one run of ours in bfloat16, which keeps parameters, states and sums in float32, and the peer's three forms
under torch's autocast to bfloat16.

All take turns in one process, so that noise meets all alike. Before the step that is timed each takes others, for a few
milliseconds: in training a step follows one of its own kind, not one that has left its threads waiting busily on a
core. A round during which other processes used the processor does not count (where the system says so). The peer is
faster in one process and slower in the next by up to a third, the same in all its rounds, so a case has several
processes, one after the other. Times are medians over all rounds, and a ratio is the median of the rounds' ratios.

Memory makes the difference: the peer gives it back to the system after each step and asks for it again, page by page,
unless something else keeps the heap large. So each case has one more process, in which the allocator keeps everything
(`KEPT`). Hardly anybody does that, but there the peer is at its best.

    python benchmarks/cpu_training.py [--cell lstm] [--processes 3] [--rounds 5] [--seconds 60]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from cpu_contestants import CELLS, DENSE, K2, ROWS, SYMBOLS, THREADS, Case, Step, floor, ours, peak, peer
from llvmlite import binding

from unroll import Corpus, Experiment
from unroll.engines import devices

RECORDS = Path(__file__).parent.parent / "results" / "bench"
FLEET = 4  # runs side by side
DISTURBED = 0.05  # of one core, used by others during a round
SETTLED = 0.02  # seconds of steps before the one that is timed
KEPT = {"MALLOC_MMAP_THRESHOLD_": 1 << 32, "MALLOC_TRIM_THRESHOLD_": 1 << 34, "MALLOC_TOP_PAD_": 1 << 28}  # glibc's
FORMS = {
    "one-hot, time first": {},
    "one-hot, batch first": {"batch_first": True},
    "embedding, time first": {"embedded": True},
}


def processor_seconds() -> tuple[float, float] | None:
    """The processor time of all processes so far, and of this one; None where the system does not say."""
    try:
        words = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return None
    usage = resource.getrusage(resource.RUSAGE_SELF)
    busy = sum(words[:8]) - words[3] - words[4]
    return busy / os.sysconf("SC_CLK_TCK"), usage.ru_utime + usage.ru_stime


def settle(step: Step) -> None:
    """Take steps, at least one, until no thread of another step waits busily on a core."""
    began = time.perf_counter()
    while time.perf_counter() - began < SETTLED:
        step()


def race(steps: dict[str, Step], rounds: int, seconds: float) -> tuple[dict[str, list[float]], int]:
    """Milliseconds of each step in every undisturbed round, and how many rounds were disturbed."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    disturbed = 0
    began = time.perf_counter()
    for step in steps.values():
        step()
        step()
    while len(times["ours"]) < rounds and (not times["ours"] or time.perf_counter() - began < seconds):
        before = processor_seconds()
        start = time.perf_counter()
        milliseconds = {}
        for name, step in steps.items():
            settle(step)
            at = time.perf_counter()
            step()
            milliseconds[name] = (time.perf_counter() - at) * 1e3
        after = processor_seconds()
        wall = time.perf_counter() - start
        others = (after[0] - before[0]) - (after[1] - before[1]) if before and after else 0.0
        # The system counts in hundredths of a second, on each core.
        if others > DISTURBED * wall + 0.02:
            disturbed += 1
            if not times["ours"] and time.perf_counter() - began > 10 * seconds:
                raise SystemExit(
                    "Other processes keep the processor busy: no round went undisturbed. Nothing recorded."
                )
            continue
        for name, value in milliseconds.items():
            times[name].append(value)
    return times, disturbed


Times = dict[str, list[float]]


def measured(case: Case, rounds: int, seconds: float) -> tuple[Times, int]:
    """Measure a case in one process: see `race`."""
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    ids = np.concatenate((np.arange(SYMBOLS), np.random.default_rng(0).integers(SYMBOLS, size=200_000)))
    corpus = Corpus.from_text("".join(chr(33 + i) for i in ids))
    products, gflop = floor(case)
    steps = {
        "ours": ours(case, corpus),
        "fleet": ours(case, corpus, FLEET),
        "bfloat16": ours(case, corpus, precision="bfloat16"),
        "floor": products,
        "peak": peak(gflop),
    }
    for name, form in FORMS.items():
        steps |= {name: peer(case, **form), f"{name}, autocast": peer(case, **form, bfloat16=True)}
    times, disturbed = race(steps, rounds, seconds)
    return times | {"fleet": [each / FLEET for each in times["fleet"]]}, disturbed


def in_processes(case: Case, processes: int, rounds: int, seconds: float) -> list[tuple[Times, int]]:
    """Measure a case in several processes, one after the other."""
    results = []
    for _ in range(processes):
        with get_context("spawn").Pool(1) as fresh:
            results.append(fresh.apply(measured, (case, rounds, seconds)))
    return results


def in_kept_memory(case: Case, rounds: int, seconds: float) -> list[tuple[Times, int]]:
    """Measure a case in one process that gives no memory back."""
    os.environ.update({name: str(value) for name, value in KEPT.items()})
    try:
        return in_processes(case, 1, rounds, seconds)
    finally:
        for name in KEPT:
            del os.environ[name]


def summary(results: list[tuple[Times, int]]) -> dict[str, object]:
    """Medians, and ratios to the fastest peer of a precision."""
    # The same number of rounds of each process, so that all processes count alike.
    fewest = min(len(times["ours"]) for times, _ in results)
    first, _ = results[0]
    times = {name: [value for each, _ in results for value in each[name][:fewest]] for name in first}
    medians = {name: statistics.median(values) for name, values in times.items()}
    best = min(FORMS, key=lambda name: medians[name])
    cast = min((f"{name}, autocast" for name in FORMS), key=lambda name: medians[name])

    def ratio(name: str, peer: str = best) -> float:
        return round(statistics.median(p / o for p, o in zip(times[peer], times[name], strict=True)), 3)

    return {
        "ours_ms": round(medians["ours"], 2),
        "fleet_ms": round(medians["fleet"], 2),
        "peer_ms": round(medians[best], 2),
        "ratio": ratio("ours"),
        "fleet_ratio": ratio("fleet"),
        "floor_ms": round(medians["floor"], 2),
        "peak_ms": round(medians["peak"], 2),
        "bfloat16_ms": round(medians["bfloat16"], 2),
        "bfloat16_ratio": ratio("bfloat16"),
        "autocast_ms": round(medians[cast], 2),
        "autocast_ratio": ratio("bfloat16", cast),
        "peer": best,
        "peers_ms": {name: round(value, 2) for name, value in medians.items() if name.split(", auto")[0] in FORMS},
        "processes": len(results),
        "rounds": fewest,
        "disturbed_rounds": sum(disturbed for _, disturbed in results),
        "every_round_ms": [
            {name: [round(x, 2) for x in values] for name, values in times.items()} for times, _ in results
        ],
    }


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cell", choices=CELLS, default="lstm")
    parser.add_argument("--processes", type=int, default=3, help="of each case, one after the other")
    parser.add_argument("--rounds", type=int, default=5, help="undisturbed rounds of each process")
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="after which a process is content with fewer rounds"
    )
    options = parser.parse_args()
    processor = binding.get_host_cpu_name()
    record = {
        "what": f"ms a training batch: {ROWS} rows, k2 = {K2}, |V| = {SYMBOLS}, dense {DENSE}, Adam",
        "machine": f"{platform.machine()}, {platform.system()}, {torch.backends.cpu.get_cpu_capability()}",
        "processor": processor,
        "cell": options.cell,
        "threads": THREADS,
        "fleet": FLEET,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "kernel": devices.resolve(Experiment(device="cpu")).kernel,
        "load_before": round(os.getloadavg()[0], 2),
    }
    columns = ("ours", "fleet", "peer", "floor", "peak", "bfloat16", "autocast")
    kinds = ("ratio", "fleet_ratio", "bfloat16_ratio", "autocast_ratio")
    names = "".join(f"{name:>10}" for name in columns)
    print(f"{'γ':>4} {'r':>2} {'loss':>7}{names} {'ratios':>23}  fastest peer, rounds")
    kind = "training" if options.cell == "lstm" else options.cell
    cases = []
    path = RECORDS / f"cpu_{kind}_{processor}.json"
    for hidden, layers, scored in itertools.product((128, 512), (1, 2), (K2, 1)):
        case = Case(options.cell, hidden, layers, scored)
        plain = summary(in_processes(case, options.processes, options.rounds, options.seconds))
        kept = summary(in_kept_memory(case, options.rounds, options.seconds))
        what = {"hidden": hidden, "layers": layers, "loss": "multi" if scored == K2 else "single"}
        cases.append(what | {"gflop": round(floor(case)[1], 2)} | plain | {"kept": kept})
        for row, words in ((plain, ""), (kept, ", memory kept")):
            times = "".join(f"{row[f'{name}_ms']:10.1f}" for name in columns)
            ratios = " ".join(f"{row[name]:5.2f}" for name in kinds)
            rounds = f"{row['processes']} × {row['rounds']} (and {row['disturbed_rounds']} disturbed){words}"
            print(f"{hidden:4} {layers:2} {what['loss']:>7}{times} {ratios}  {row['peer']}, {rounds}", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record | {"cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
