"""Three training steps that cross an epoch's end equal the independent transcription of Algorithms 1 to 3.

Every loss weighting × state origin × cell × {k1 <, =, > k2} × 1 and 2 layers × M of 1 and 3 × every kernel, each also
with the clip so low that 10 to 90 % of the elements are clipped. Compared: the loss, the gradient of every parameter,
the updated weights, and the carried state.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest
import torch
import transcription

from unroll import SCHEMES, Corpus, Experiment, Scheme
from unroll.base import plugins
from unroll.engines import kernels
from unroll.engines.choice import engine_of
from unroll.experiment import spelled
from unroll.training.learner import Learner

TOLERANCE = 1e-9  # relative to the largest element of the tensor compared, in float64
ROWS, K2, HIDDEN, DENSE = 3, 4, 5, 6
STEPS = 3
CPU = torch.device("cpu")
KERNELS = plugins.names("kernels")

WEIGHTINGS = {
    "multi-loss": {"loss": "equal"},
    "single-loss": {"loss": "last"},
    "k3": {"loss": "equal", "k3": 2},
    "linear": {"loss": "linear"},
    "exponential": {"loss": "exponential"},
    "linear-normalised-k3": {"loss": "linear", "k3": 3, "normalise": True},
}
ORIGINS = {
    "learned": {"state": "learned"},
    "carried": {"state": "carried"},
    "carried-never": {"state": "carried", "reset": "never"},
    "carried-random": {"state": "carried", "reset": 0.4},
}
CELLS = {
    "lstm-paper": {"cell": "lstm", "peepholes": "paper"},
    "lstm-lasagne": {"cell": "lstm", "peepholes": "lasagne"},
    "lstm-plain": {"cell": "lstm", "peepholes": "off"},
    "gru": {"cell": "gru"},
    "rnn": {"cell": "rnn"},
}
# Schedules once more, as factors of batch i of n.
RATE_FACTORS = {
    "constant": lambda i, n: 1.0,
    "step,every=3,by=0.1": lambda i, n: 0.1 if i in (4, 5, 6) else 0.01 if i in (7, 8, 9) else 0.001 if i > 9 else 1.0,
    "linear,final=0.2": lambda i, n: 1.0 - 0.8 * (i - 1) / n,
    "cosine,final=0.1": lambda i, n: 0.55 + 0.45 * np.cos(np.pi * (i - 1) / n),
    "exponential,final=0.5": lambda i, n: np.exp(np.log(0.5) * (i - 1) / n),
}
STRIDES = {"k1<k2": 3, "k1=k2": K2, "k1>k2": 6}


def corpus(seed: int, symbols: int) -> Corpus:
    """A short text in which every symbol occurs, so that an epoch has a handful of batches."""
    generator = np.random.default_rng(seed)
    ids = np.concatenate((np.arange(symbols), generator.integers(symbols, size=75)))
    return Corpus.from_text("".join(chr(97 + i) for i in ids))


def learner_near_an_epochs_end(experiments: list[Experiment], corpora: list[Corpus], kernel: str) -> Learner:
    """A learner whose values are random throughout, one batch before the first run's epoch ends."""
    learner = Learner(experiments, corpora, engine_of(CPU, kernel))
    for m, experiment in enumerate(experiments):
        generator = np.random.default_rng(100 + experiment.seed)
        held = learner.snapshot(m)
        for name, value in learner.model.values(m).items():
            if not (name.endswith(("h0", "c0")) and experiment.scheme.carries):
                held[name] = torch.from_numpy(generator.normal(0, 0.5, value.shape)).to(value.dtype)
        learner.restore(m, held)
    learner.count = learner.batches.schedules[0].batches_an_epoch - 1
    return learner


def transcribe(learner: Learner, m: int, tokens: np.ndarray, clip: float) -> list[transcription.Step]:
    """The same steps of run m, by the transcription."""
    experiment, schedule = learner.experiments[m], learner.batches.schedules[m]
    scheme = experiment.scheme
    setting = transcription.Setting(
        cell=experiment.cell,
        peepholes=experiment.peepholes if experiment.cell == "lstm" else "off",
        layers=experiment.layers,
        rows=experiment.rows,
        k1=scheme.k1,
        k2=scheme.k2,
        weights=(0.0,) * (scheme.k2 - scheme.scored) + scheme.weights,
        carried=scheme.carries,
        reset=scheme.reset if isinstance(scheme.reset, str) else "random",
        clip=clip,
        optimiser=spelled.name_of(experiment.optimiser),
        learning_rate=experiment.learning_rate,
        momentum=spelled.values("optimisers", experiment.optimiser).get("momentum", 0.0),
        # Updates count from 1 here; the schedule counts the run's batches.
        rate_factor=lambda t: (
            RATE_FACTORS[experiment.schedule](learner.count + t, experiment.batches)
            * min(1.0, (learner.count + t) / max(experiment.warm_up, 1))
        ),
        clip_norm=experiment.clip_norm,
        weight_decay=experiment.weight_decay,
        decoupled=experiment.decay == "decoupled",
    )
    parameters = {name: value.double().numpy() for name, value in learner.model.values(m).items()}
    return transcription.train(
        parameters,
        tokens,
        setting,
        STEPS,
        first_batch=learner.count,
        rotation=lambda epoch: schedule.rotation(epoch * schedule.batches_an_epoch),
        resets=schedule.resets,
    )


def check_close(got: torch.Tensor, expected: np.ndarray, tolerance: float, what: str) -> None:
    """The largest difference, relative to the largest expected element."""
    error = np.abs(got.double().numpy() - expected).max(initial=0.0)
    assert error <= tolerance * max(np.abs(expected).max(initial=0.0), 1e-3), f"{what}: off by {error:.2e}"


def check_steps(
    experiments: list[Experiment], corpora: list[Corpus], tolerance: float = TOLERANCE, clipping: bool = False
) -> None:
    """Take three steps with each kernel and hold every run of the fleet to its transcription."""
    start = learner_near_an_epochs_end(experiments, corpora, "reference")
    assert start.batches.schedules[0].batches_an_epoch in range(start.count + 1, start.count + STEPS)
    truths = transcriptions(start, corpora)
    if clipping:
        for _ in range(8):
            if all(0.1 <= share <= 0.9 for share in clipped_shares(truths)):
                break
            # Clipping itself shrinks what flows further back, so a good limit is approached, not computed.
            limit = float(np.median(np.concatenate([step.seen[step.seen > 0] for truth in truths for step in truth])))
            experiments = [replace(e, clip=limit) for e in experiments]
            start = learner_near_an_epochs_end(experiments, corpora, "reference")
            truths = transcriptions(start, corpora)
        shares = clipped_shares(truths)
        assert all(0.1 <= share <= 0.9 for share in shares), f"of the elements, {shares} are clipped"
    for kernel in supporting(start):
        check_learner(learner_near_an_epochs_end(experiments, corpora, kernel), truths, tolerance)


def supporting(learner: Learner) -> list[str]:
    """The kernels that run this on the CPU: the general ones always, the others where they know the cell."""
    found = [name for name in KERNELS if kernels.load(name).supports(learner.model.network, CPU) is None]
    assert {"reference", "stacked"} <= set(found)
    assert "host" in found or learner.experiments[0].cell != "lstm"
    return found


def transcriptions(learner: Learner, corpora: list[Corpus]) -> list[list[transcription.Step]]:
    return [
        transcribe(learner, m, c.train_ids(e.split_seed).astype(np.int64), e.clip)
        for m, (e, c) in enumerate(zip(learner.experiments, corpora, strict=True))
    ]


def clipped_shares(truths: list[list[transcription.Step]]) -> list[float]:
    return [float(np.mean([step.clipped for step in truth])) for truth in truths]


def check_learner(learner: Learner, truths: list[list[transcription.Step]], tolerance: float) -> None:
    gradients = watch_gradients(learner)
    for step in range(STEPS):
        learner.step()
        for m, truth in enumerate(truths):
            expected, scheme = truth[step], learner.experiments[m].scheme
            where = f"{learner.model.engine.kernel}, run {m}, step {step}"
            (loss,) = learner.take_losses([m])
            assert loss is not None
            check_close(
                torch.tensor(loss * sum(scheme.weights), dtype=torch.float64),
                np.float64(expected.loss),
                tolerance,
                f"{where}, loss",
            )
            own = learner.model.values(m, gradients)
            for name, value in expected.gradients.items():
                check_close(own[name], value, tolerance, f"{where}, gradient of {name}")
            held = learner.snapshot(m)
            for name, value in expected.parameters.items():
                check_close(held[name], value, tolerance, f"{where}, {name}")
            # A learned-state run carries nothing on, so what lies in its slot is nobody's.
            for layer, state in enumerate(expected.carried if scheme.carries else ()):
                for name, value in state.items():
                    check_close(held[f"carried.{layer}.{name}"], value, tolerance, f"{where}, carried {layer}.{name}")


def watch_gradients(learner: Learner) -> dict[str, torch.Tensor]:
    """What reaches the optimiser, by parameter; and let its count start at 1, as it does in the transcription."""
    first, seen = learner.count, {}
    change, begin = learner.update.change, learner.update.begin

    def watched(gradients, alive_M):
        seen.update({name: gradient.clone() for name, gradient in gradients.items()})
        change(gradients, alive_M)

    learner.update.change = watched
    learner.update.begin = lambda count: begin(count - first)
    return seen


def case(scheme: Scheme, cell: dict, layers: int, seed: int = 0, dense: int = DENSE, **more) -> Experiment:
    settings = {
        "layers": layers,
        "hidden": HIDDEN,
        "dense": dense,
        "rows": ROWS,
        "precision": "float64",
        "seed": seed,
    }
    return Experiment(scheme=scheme, learning_rate=0.01, **cell, **settings, **more)


def halved(*axes: Iterable[object]) -> list[object]:
    """Every combination. Half of them, in which any two values still meet, are fast; the others run with the slow."""
    places = [list(enumerate(axis)) for axis in axes]
    return [
        pytest.param(*(value for _, value in chosen), marks=[pytest.mark.slow] if sum(n for n, _ in chosen) % 2 else [])
        for chosen in itertools.product(*places)
    ]


LAYERS = (1, 2)


@pytest.mark.parametrize(("cell", "origin", "stride", "layers"), halved(CELLS, ORIGINS, STRIDES, LAYERS))
def test_three_steps_equal_the_transcription(cell: str, origin: str, stride: str, layers: int) -> None:
    for place, weighting in enumerate(WEIGHTINGS.values()):
        scheme = Scheme(k1=STRIDES[stride], k2=K2, **weighting, **ORIGINS[origin])
        optimiser = ("adam", "rmsprop")[place % 2]
        one, text = case(scheme, CELLS[cell], layers, optimiser=optimiser), corpus(0, 7)
        check_steps([one], [text])
        check_steps([one], [text], clipping=True)


@pytest.mark.parametrize(("cell", "stride", "layers"), halved(CELLS, STRIDES, LAYERS))
def test_three_steps_of_three_unlike_runs_equal_the_transcription(cell: str, stride: str, layers: int) -> None:
    """One fleet mixes corpora, vocabularies, k1, seeds, learning rates, weightings within K and state origins."""
    corpora = [corpus(0, 7), corpus(1, 9), corpus(0, 7)]
    k1 = STRIDES[stride]
    for weighting, (origin, other) in itertools.product(
        ("linear", "exponential", "multi-loss"), (("learned", "carried"), ("carried-never", "carried-random"))
    ):
        schemes = [
            Scheme(k1=k1, k2=K2, **WEIGHTINGS[weighting], **ORIGINS[origin]),
            Scheme(k1=k1 if k1 > K2 else 2, k2=K2, **WEIGHTINGS["linear"], **ORIGINS[other]),
            Scheme(k1=k1, k2=K2, **WEIGHTINGS["multi-loss"], **ORIGINS["learned"]),
        ]
        runs = [case(s, CELLS[cell], layers, seed=m) for m, s in enumerate(schemes)]
        runs[1] = replace(runs[1], learning_rate=0.003)
        check_steps(runs, corpora)
        check_steps(runs, corpora, clipping=True)


@pytest.mark.parametrize("cell", CELLS)
def test_three_steps_without_a_dense_layer_equal_the_transcription(cell: str) -> None:
    for origin, k1 in itertools.product(("learned", "carried"), STRIDES.values()):
        schemes = [Scheme(k1=k1, k2=K2, **WEIGHTINGS[loss], **ORIGINS[origin]) for loss in ("linear", "exponential")]
        runs = [case(scheme, CELLS[cell], 2, seed=m, dense=0) for m, scheme in enumerate(schemes)]
        check_steps(runs, [corpus(0, 7), corpus(1, 9)])
        check_steps(runs[:1], [corpus(0, 7)], clipping=True)


def test_float32_steps_stay_within_single_precision_of_the_transcription() -> None:
    """RMSprop, since Adam turns a rounding of a gradient near 0 into a step of full size."""
    for cell, scheme in itertools.product(CELLS.values(), SCHEMES.values()):
        run = case(replace(scheme, k1=3, k2=K2), cell, 2, optimiser="rmsprop")
        check_steps([replace(run, precision="float32")], [corpus(0, 7)], tolerance=2e-5)


@pytest.mark.parametrize("decay", ["l2", "decoupled"])
@pytest.mark.parametrize("optimiser", ["adam", "rmsprop", "sgd,momentum=0.9"])
def test_schedules_decay_and_clipping_by_norm_equal_the_transcription(optimiser: str, decay: str) -> None:
    common = {"hidden": HIDDEN, "dense": DENSE, "rows": ROWS, "batches": 12, "precision": "float64", "device": "cpu"}
    common |= {"scheme": Scheme(k1=3, k2=K2), "optimiser": optimiser, "decay": decay, "learning_rate": 0.1}
    unlike = [
        {"schedule": "cosine,final=0.1", "weight_decay": 0.3, "clip_norm": 0.5},
        {"schedule": "step,every=3,by=0.1", "clip_norm": 2.0, "warm_up": 11},
        {"schedule": "linear,final=0.2", "weight_decay": 0.1},
        {"schedule": "exponential,final=0.5", "weight_decay": 0.01, "clip_norm": 1e9},
        {},
    ]
    runs = [Experiment(**common, **own, seed=seed) for seed, own in enumerate(unlike)]
    check_steps(runs, [corpus(seed, 7 + seed) for seed in range(len(runs))])
