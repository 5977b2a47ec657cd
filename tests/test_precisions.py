"""Precisions and kernels are chosen in the open: what a device lacks is said before any work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import unroll
from helpers import CPU, tiny, tiny_corpus

from unroll import devices, kernels, load, precisions, train
from unroll.errors import ConfigurationError
from unroll.kernels import persistent
from unroll.run import RunFolder


@pytest.mark.parametrize("precision", ["tf32", "bfloat16"])
def test_a_precision_that_the_device_lacks_is_refused_in_words(precision: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{precision} needs an NVIDIA GPU.*Choose another --precision"):
        devices.resolve(tiny(precision=precision))


def test_the_command_says_so_before_it_makes_a_folder(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question. " * 200)
    result = unroll("train", text, "--precision", "bfloat16", "--device", "cpu", "--out", tmp_path / "run")
    assert result.code == 2
    assert "bfloat16 needs an NVIDIA GPU" in result.err
    assert not (tmp_path / "run").exists()


def test_a_kernel_that_the_device_lacks_is_refused_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"The kernel fused cannot run this: it needs an NVIDIA GPU"):
        train(tiny(precision="float32", kernel="fused"), tmp_path / "run", tiny_corpus())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("cell", "expected"), [("lstm", "compiled"), ("gru", "stacked"), ("rnn", "stacked")])
def test_auto_is_the_fastest_kernel_that_knows_the_cell(cell: str, expected: str) -> None:
    assert devices.resolve(tiny(cell=cell)).kernel == expected
    assert kernels.choose(devices.outline(tiny(cell=cell)), CPU) == expected


def test_no_kernel_takes_a_precision_that_it_would_not_compute_in() -> None:
    network = devices.outline(tiny(cell="rnn"))._replace(precision="bfloat16")
    for name in ("reference", "stacked"):
        assert "does not round what it multiplies to bfloat16" in (kernels.load(name).supports(network, CPU) or "")
    with pytest.raises(ConfigurationError, match=r"No kernel can run this.*stacked: it does not round .*--precision"):
        kernels.choose(network, CPU)


def test_every_precision_is_another_training() -> None:
    identities = {replace(tiny(), precision=name).identity for name in precisions.PRECISIONS}
    assert len(identities) == len(precisions.PRECISIONS)


def test_faster_precisions_keep_float32_parameters() -> None:
    for name in ("tf32", "bfloat16"):
        assert precisions.PRECISIONS[name].kept == torch.float32


def test_torchs_switch_is_put_back_after_a_block() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with precisions.multiplying("tf32"):
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    with pytest.raises(ZeroDivisionError), precisions.multiplying("tf32"):
        _ = 1 / 0
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_a_run_of_a_precision_that_is_not_here_computes_in_float32_and_says_so(tmp_path: Path) -> None:
    corpus = tiny_corpus()
    train(tiny(precision="float32"), tmp_path / "run", corpus)
    folder = RunFolder(tmp_path / "run")
    folder.experiment = replace(folder.experiment, precision="bfloat16")
    run = load(tmp_path / "run", device="cpu")
    assert run.model.experiments[0].precision == "float32"
    assert any("trained in bfloat16, which this device lacks" in note for note in run.notes)


def test_the_persistent_kernel_is_not_launched_with_registers_that_its_warps_cannot_share_out(monkeypatch) -> None:
    class Compiled:
        registers = 160

        def allow(self, *_sizes: int) -> Compiled:
            return self

    monkeypatch.setattr(persistent._cuda, "module", lambda *_: {name: Compiled() for name in ("forward", "mark")})
    code = persistent._Code(hidden=128, rows=64, cell=0, tiles=1, chains=1)
    code.function("mark")
    with pytest.raises(ConfigurationError, match=r"160 registers a thread .* 168. Choose --kernel fused"):
        code.function("forward")
