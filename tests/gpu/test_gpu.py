"""On a CUDA device: every kernel equals the reference on the CPU in float64, and training, resume and fleets hold."""

from __future__ import annotations

import gc
import weakref
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import unroll
from unroll import SCHEMES, Corpus, Experiment, Scheme, train_fleet
from unroll.base.errors import ConfigurationError
from unroll.corpus import synthetic
from unroll.corpus.batches import Batches
from unroll.engines.choice import engine_of
from unroll.engines.cuda import side_stream
from unroll.engines.cuda.batches import gather_at, sent
from unroll.runs.folder import RunFolder
from unroll.training.learner import Learner

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
KERNELS = [("stacked", "float64"), ("stacked", "float32"), ("fused", "float32")]
CELLS = [("lstm", "paper"), ("lstm", "lasagne"), ("lstm", "off"), ("gru", "off"), ("rnn", "off")]
# Relative to the largest element: rounding of float64 and of float32 over a few hundred products.
TOLERANCE = {"float64": 1e-11, "float32": 5e-5}


def text(tokens: int = 3000, seed: int = 0) -> Corpus:
    return Corpus.from_text(synthetic.Markov(symbols=11).text(tokens, seed))


def experiment(cell: str = "lstm", peepholes: str = "paper", **settings) -> Experiment:
    small = {"hidden": 24, "dense": 40, "rows": 6, "batches": 30, "precision": "float64", "learning_rate": 0.01}
    small |= {"scheme": Scheme(k1=5, k2=9), **settings}
    return Experiment(cell=cell, peepholes=peepholes, **small)


def gradients(device: torch.device, kernel: str, run: Experiment) -> tuple[torch.Tensor, list[torch.Tensor]]:
    runs = [run, replace(run, seed=1, scheme=replace(run.scheme, state="carried"))]
    learner = Learner(runs, [text(), text()], engine_of(device, kernel))
    nll, state = learner.model.nll(learner.batches[3], learner.carried)
    loss = (nll * torch.linspace(-1, 1, nll.numel(), device=device, dtype=nll.dtype).view_as(nll)).sum()
    of_parameters = torch.autograd.grad(loss, list(learner.model.parameters.values()))
    return nll.detach(), [*of_parameters, *(s for layer in state for s in layer)]


@pytest.mark.parametrize("clip", [50.0, 0.05])
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize(("cell", "peepholes"), CELLS)
@pytest.mark.parametrize(("kernel", "precision"), KERNELS)
def test_a_model_on_cuda_equals_the_reference_in_float64(
    kernel: str, cell: str, peepholes: str, precision: str, layers: int, clip: float
) -> None:
    if kernel == "fused" and cell == "rnn":
        with pytest.raises(ConfigurationError, match="knows the cells lstm and gru"):
            gradients(CUDA, kernel, experiment(cell, peepholes, precision=precision))
        return
    truth_nll, truth = gradients(CPU, "reference", experiment(cell, peepholes, layers=layers, clip=clip))
    nll, computed = gradients(CUDA, kernel, experiment(cell, peepholes, layers=layers, clip=clip, precision=precision))
    for got, expected in zip([nll, *computed], [truth_nll, *truth], strict=True):
        error = (got.double().cpu() - expected.double()).abs().max()
        assert error <= TOLERANCE[precision] * expected.abs().max().clamp(min=1e-3)


@pytest.mark.parametrize("scheme", [1, 2, 4])
def test_a_fleet_on_cuda_trains_as_the_runs_alone_on_the_cpu(scheme: int) -> None:
    runs = [
        experiment(scheme=replace(SCHEMES[scheme], k1=k1, k2=9), seed=k1, dropout=0.1 * m, learning_rate=0.002 * k1)
        for m, k1 in enumerate((3, 5, 9))
    ]
    corpora = [text(), text(seed=1), text()]
    fleet = Learner(runs, corpora, engine_of(CUDA, "stacked"))
    for _ in range(30):
        fleet.step()
    for m, (run, corpus) in enumerate(zip(runs, corpora, strict=True)):
        alone = Learner([run], [corpus], engine_of(CPU, "reference"))
        for _ in range(30):
            alone.step()
        for name, value in alone.model.values(0).items():
            error = (fleet.model.values(m)[name] - value).abs().max()
            assert error <= 1e-9 * value.abs().max().clamp(min=1e-3), name


@pytest.mark.parametrize(("hidden", "runs"), [(128, 3), (512, 1), (512, 9)])
def test_a_step_that_branches_gives_the_bits_of_one_that_does_not(
    hidden: int, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work on the side stream is neither early nor late, and no other work overwrites it."""
    wide = {"hidden": hidden, "dense": 128, "rows": 64, "layers": 2, "precision": "bfloat16", "dropout": 0.2}
    fleet = [experiment(seed=m, **wide) for m in range(runs)]

    def trained() -> list[dict[str, torch.Tensor]]:
        learner = Learner(fleet, [text()] * runs, engine_of(CUDA, "persistent"))
        for _ in range(20):
            learner.step()
        return [learner.model.values(m) for m in range(runs)]

    branched = trained()
    monkeypatch.setattr(side_stream, "allowed", nullcontext)
    for with_side_stream, expected in zip(branched, trained(), strict=True):
        for name, value in expected.items():
            assert torch.equal(with_side_stream[name], value), name


@pytest.mark.parametrize("k1", [4, 12])
def test_a_batch_gathered_in_one_launch_is_the_batch(k1: int) -> None:
    scheme = Scheme(k1=k1, k2=9, state="carried", sample="progressive", reset=0.5)
    runs = [experiment(seed=m, split_seed=m, scheme=scheme) for m in range(3)]
    batches = Batches(runs, [text(900), text(700, seed=1), text(900)], CUDA)
    count = 2 * max(s.batches_an_epoch for s in batches.schedules) + 1  # the train sets are rotated meanwhile
    starts_nMB, resets_nMB = batches.stretch(0, count)
    for n in range(count):
        number = torch.tensor(n, device=CUDA)
        expected = batches.gather(number, starts_nMB[n].to(CUDA), resets_nMB[n].to(CUDA))
        gathered = gather_at(batches, number, *sent(batches, 0, count), torch.tensor([n], device=CUDA))
        for one, other in zip(gathered, expected, strict=True):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one.long(), other.long())


def test_a_recording_bears_the_garbage_of_those_before() -> None:
    """Old graphs destroyed while a step is recorded would spoil it: nothing is collected then."""
    runs = [experiment(hidden=128, rows=64, precision="bfloat16")]
    thresholds = gc.get_threshold()
    try:
        for _ in range(5):
            gc.disable()
            garbage = Learner(runs, [text()], engine_of(CUDA, "persistent"))
            garbage.step()
            garbage.itself = garbage  # type: ignore[attr-defined]
            del garbage
            gc.enable()
            gc.set_threshold(1)
            learner = Learner(runs, [text()], engine_of(CUDA, "persistent"))
            learner.step()
            gc.set_threshold(*thresholds)
        assert np.isfinite(learner.look().loss(0))
    finally:
        gc.set_threshold(*thresholds)


def test_a_learner_is_let_go_with_its_last_name() -> None:
    learner = Learner([experiment()], [text()], engine_of(CUDA, "stacked"))
    learner.step()
    held = weakref.ref(learner)
    gc.disable()
    del learner
    gc.enable()
    assert held() is None


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_a_run_interrupted_on_cuda_ends_bit_identical(tmp_path: Path, precision: str) -> None:
    wide = {"hidden": 128, "rows": 64} if precision == "bfloat16" else {}
    scheme = Scheme(k1=5, k2=9, state="carried")
    run = experiment(device="cuda", precision=precision, dropout=0.2, scheme=scheme, **wide)
    corpus = text()
    for _ in train_fleet([run], [corpus], [tmp_path / "whole"]):
        pass
    for event in train_fleet([run], [corpus], [tmp_path / "cut"], save_every=7):
        if event.learner.count == 17:
            break
    for _ in train_fleet([run], [corpus], [tmp_path / "cut"], resume=True):
        pass
    assert RunFolder(tmp_path / "cut").status["state"] == "finished"
    whole, cut = ((tmp_path / name / "weights.safetensors") for name in ("whole", "cut"))
    from unroll.base.atomic_files import unseal

    for name, value in unseal(whole)[0].items():
        assert torch.equal(value, unseal(cut)[0][name]), name


def test_sampling_and_perplexity_on_cuda_equal_the_cpu(tmp_path: Path) -> None:

    unroll.train(experiment(device="cuda"), tmp_path / "run", text())
    on_cpu, on_cuda = (unroll.load(tmp_path / "run", device) for device in ("cpu", "cuda"))
    for procedure in ("windowed", "progressive"):
        texts = [unroll.sample(run, prompt="abc", length=100, sample=procedure).text for run in (on_cpu, on_cuda)]
        assert texts[0] == texts[1]
        scores = [unroll.perplexity(run, procedure, corpus=text(seed=5))[0].nats for run in (on_cpu, on_cuda)]
        np.testing.assert_allclose(scores[1], scores[0], rtol=1e-10)


@pytest.mark.parametrize(
    ("kernel", "precision"), [("persistent", "bfloat16"), ("fused", "float32"), ("stacked", "float32")]
)
def test_one_runs_nan_on_cuda_stays_its_own(kernel: str, precision: str) -> None:
    runs = [experiment(hidden=128, rows=64, precision=precision, seed=seed) for seed in range(3)]
    hurt, whole = (Learner(runs, [text()] * 3, engine_of(CUDA, kernel)) for _ in range(2))
    for count in range(20):
        if count == 7:
            with torch.no_grad():
                hurt.model.parameters["layers.0.W_h"][1, 3, 4] = torch.nan
            before = hurt.snapshot(1)
        hurt.step()
        whole.step()
    assert hurt.look().stopped(1) == (8, "the loss was not finite")
    assert [hurt.look().stopped(m) for m in (0, 2)] == [None, None]
    for name, value in hurt.snapshot(1).items():
        if not name.startswith("progress"):
            assert torch.equal(value.nan_to_num(), before[name].nan_to_num()), name
    for m in (0, 2):
        for name, value in hurt.snapshot(m).items():
            assert torch.equal(value, whole.snapshot(m)[name]), name


@pytest.mark.parametrize("scheme", [1, 2, 4])
def test_bfloat16_learns_what_float32_learns(scheme: int) -> None:
    losses = {}
    for precision in ("float32", "tf32", "bfloat16"):
        shape = {"hidden": 128, "rows": 64, "learning_rate": 0.003, "batches": 300}
        run = experiment(precision=precision, scheme=replace(SCHEMES[scheme], k1=9, k2=9), **shape)
        learner = Learner(
            [run] * 2, [text(30000)] * 2, engine_of(CUDA, "persistent" if precision == "bfloat16" else "fused")
        )
        for _ in range(250):
            learner.step()
        learner.take_losses([0, 1])
        for _ in range(50):
            learner.step()
        losses[precision] = learner.look().loss(0)
    assert losses["float32"] < 2.1, "a chain of 11 symbols: ln 11 is 2.4"
    for precision in ("tf32", "bfloat16"):
        assert abs(losses[precision] - losses["float32"]) < 0.02, losses


def test_a_fleet_is_evaluated_on_cuda_as_the_runs_alone_on_the_cpu() -> None:
    from unroll.runs.perplexities import token_nll

    runs = [experiment(hidden=128, rows=64, precision="float32", layers=2, seed=seed) for seed in range(3)]
    ids = [torch.from_numpy(text(700 + 50 * m, seed=m).ids.astype("int64")) for m in range(3)]
    fused = Learner(runs, [text()] * 3, engine_of(CUDA, "fused")).model
    quick = Learner([replace(r, precision="bfloat16") for r in runs], [text()] * 3, engine_of(CUDA, "persistent")).model
    for procedure in ("windowed", "progressive"):
        nll_by_run = token_nll(fused, [i.to(CUDA) for i in ids], 9, procedure)
        rough = token_nll(quick, [i.to(CUDA) for i in ids], 9, procedure)
        for m in range(3):
            alone = Learner([runs[m]], [text()], engine_of(CPU, "stacked")).model
            (truth,) = token_nll(alone, [ids[m]], 9, procedure)
            torch.testing.assert_close(nll_by_run[m], truth, rtol=1e-4, atol=1e-5)
            assert float((rough[m] - truth).abs().mean()) < 0.01


@pytest.mark.parametrize(("kernel", "precision"), KERNELS)
def test_the_largest_loss_and_gradient_norm_of_replayed_steps_are_those_of_the_cpu(kernel: str, precision: str) -> None:
    runs = [experiment(precision=precision, seed=seed) for seed in (1, 2)]
    corpora = [text(), text()]
    found = []
    for device, its_kernel in ((CPU, "reference"), (CUDA, kernel)):
        learner = Learner(runs, corpora, engine_of(device, its_kernel))
        for _ in range(20):
            learner.step()
        found.append(learner.take([0, 1]))
    for cpu, cuda in zip(*found, strict=True):
        assert cuda.largest_loss == pytest.approx(cpu.largest_loss, rel=1e-4)
        assert cuda.largest_gradient_norm == pytest.approx(cpu.largest_gradient_norm, rel=1e-3)
