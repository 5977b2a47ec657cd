"""Precisions and kernels are chosen in the open: an error says what a device lacks, before any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import unroll
from helpers import CPU, every_plugin, tiny, tiny_corpus

from unroll import load, perplexity, train
from unroll.base.errors import ConfigurationError
from unroll.engines import devices, kernels, precisions
from unroll.engines.choice import engine_of
from unroll.engines.cpu import bf16, builder
from unroll.engines.cuda import compiler
from unroll.engines.cuda.kernels import persistent
from unroll.engines.cuda.products import multiplying
from unroll.model.precisions import PRECISIONS
from unroll.runs.folder import RunFolder
from unroll.training.events import Stepped
from unroll.training.learner import Learner
from unroll.training.loop import train_fleet


def test_a_precision_that_the_device_lacks_is_refused_in_words() -> None:
    with pytest.raises(ConfigurationError, match=r"tf32 needs an NVIDIA GPU.*bfloat16. Choose another precision="):
        devices.resolve(tiny(precision="tf32"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--precision", "tf32"], "tf32 needs an NVIDIA GPU"),
        (["--precision", "float64", "--cell", "gru", "--kernel", "host"], "it knows only the LSTM"),
        (["--precision", "bfloat16", "--kernel", "host"], "it does not round what it multiplies to bfloat16"),
    ],
)
def test_the_command_says_so_before_it_makes_a_folder(options: list[str], words: str, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 200)
    result = unroll("train", text, *options, "--device", "cpu", "--out", tmp_path / "run")
    assert result.code == 2
    assert words in result.err
    assert not (tmp_path / "run").exists()


def test_without_llvmlite_there_is_no_bfloat16_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "available", lambda: False)
    with pytest.raises(ConfigurationError, match=r"compiled: it needs llvmlite.*pip install.*Choose another"):
        devices.resolve(tiny(precision="bfloat16"))


def test_bfloat16_trains_on_the_cpu_and_goes_on_where_it_stopped_to_the_bit(tmp_path: Path) -> None:
    whole, corpus = tiny(precision="bfloat16", batches=60, dropout=0.2), tiny_corpus()
    train(whole, tmp_path / "whole", corpus)
    train(replace(whole, precision="float32"), tmp_path / "exact", corpus)
    begun = train_fleet([whole], [corpus], [tmp_path / "parts"], save_every=10)
    next(event for event in begun if event.learner.count == 25)
    begun.close()
    again = train_fleet([whole], [corpus], [tmp_path / "parts"], resume=True)
    counts = [event.learner.count for event in again if isinstance(event, Stepped)]
    assert (min(counts), max(counts)) == (26, 60)
    run, resumed, exact = (load(tmp_path / name, device="cpu") for name in ("whole", "parts", "exact"))
    assert (run.model.experiments[0].precision, run.model.engine.kernel, run.notes) == (
        "bfloat16",
        "compiled",
        (),
    )
    for name, value in run.model.parameters.items():
        assert torch.equal(value, resumed.model.parameters[name]), name
    for name in ("layers.0.W_h", "dense.W", "out.W"):
        value, truth = run.model.parameters[name], exact.model.parameters[name]
        assert 0 < (value - truth).norm() < 0.05 * truth.norm(), name
    assert perplexity(run, corpus=corpus)[0].nats == pytest.approx(perplexity(exact, corpus=corpus)[0].nats, rel=0.02)


@every_plugin("cells")
def test_a_run_in_bfloat16_is_the_same_alone_and_in_a_fleet_on_the_cpu(name: str) -> None:
    runs = [tiny(cell=name, precision="bfloat16", seed=seed) for seed in range(3)]
    fleet = Learner(runs, [tiny_corpus()] * 3, engine_of(CPU, "compiled"))
    alone = Learner(runs[1:2], [tiny_corpus()], engine_of(CPU, "compiled"))
    for _ in range(4):
        fleet.step()
        alone.step()
    for name, value in alone.model.parameters.items():
        assert torch.equal(fleet.model.parameters[name][1], value[0]), name


def test_a_kernel_that_the_device_lacks_is_refused_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"The kernel fused cannot run this: it needs an NVIDIA GPU"):
        train(tiny(precision="float32", kernel="fused"), tmp_path / "run", tiny_corpus())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("cell", "without"), [("lstm", "host"), ("gru", "stacked"), ("rnn", "stacked")])
def test_auto_is_the_fastest_kernel_that_knows_the_cell(
    cell: str, without: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for expected, made in (("compiled", True), (without, False)):
        monkeypatch.setattr(builder, "available", lambda made=made: made)
        assert devices.resolve(tiny(cell=cell)).kernel == expected
        assert kernels.choose(devices.outline(tiny(cell=cell)), CPU) == expected


def test_no_kernel_takes_a_precision_that_it_would_not_compute_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "available", lambda: False)
    network = devices.outline(tiny(cell="rnn"))._replace(precision="bfloat16")
    for name in ("reference", "stacked"):
        assert "does not round what it multiplies to bfloat16" in (kernels.load(name).supports(network, CPU) or "")
    with pytest.raises(ConfigurationError, match=r"No kernel can run this.*stacked: it does not round .*precision="):
        kernels.choose(network, CPU)


def test_every_precision_is_another_training() -> None:
    identities = {replace(tiny(), precision=name).identity for name in PRECISIONS}
    assert len(identities) == len(PRECISIONS)


def test_faster_precisions_keep_float32_parameters() -> None:
    for name in ("tf32", "bfloat16"):
        assert PRECISIONS[name].kept == torch.float32


def test_torchs_switch_is_put_back_after_a_block() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with multiplying("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    with pytest.raises(ZeroDivisionError), multiplying("tf32"):
        _ = 1 / 0
    assert torch.backends.cuda.matmul.fp32_precision == before


@pytest.mark.parametrize(("precision", "cell"), [("tf32", "lstm"), ("bfloat16", "gru")])
def test_a_run_of_a_precision_that_is_not_here_computes_in_float32_and_says_so(
    precision: str, cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builder, "available", lambda: False)  # nor has it bfloat16
    corpus = tiny_corpus()
    train(tiny(precision="float32", cell=cell), tmp_path / "run", corpus)
    folder = RunFolder(tmp_path / "run")
    folder.experiment = replace(folder.experiment, precision=precision)
    run = load(tmp_path / "run", device="cpu")
    assert run.model.experiments[0].precision == "float32"
    assert any(f"trained in {precision}, which is not to be had here" in note for note in run.notes)


def test_a_processor_that_gains_nothing_by_bfloat16_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "fast", lambda: False)
    assert (
        precisions.described("bfloat16", "cpu") == "bfloat16 (which this processor multiplies no faster than float32)"
    )
    assert precisions.described("float32", "cpu") == "float32"
    monkeypatch.setattr(bf16, "fast", lambda: True)
    assert precisions.described("bfloat16", "cpu") == "bfloat16"


def test_the_persistent_kernel_is_not_launched_with_registers_that_its_warps_cannot_share_out(monkeypatch) -> None:
    class Compiled:
        registers = 160

        def allow(self, *_sizes: int) -> Compiled:
            return self

    functions = {name: Compiled() for name in ("forward", "mark")}
    monkeypatch.setattr(compiler.Module, "load", lambda *_: functions)
    code = persistent._Code(hidden=128, rows=64, cell=0, tiles=1, chains=1)
    code.function("mark")
    with pytest.raises(ConfigurationError, match=r'160 registers a thread .* 168. Choose kernel="fused"'):
        code.function("forward")
