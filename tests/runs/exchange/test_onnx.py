"""An exported step, run by ONNX Runtime, predicts what the run predicts; its metadata is all that a reader needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from commands import unroll
from exchange_cases import of_scheme, random_run
from helpers import every_cell, random_ids

from unroll import Run, to_onnx
from unroll.base.errors import ConfigurationError
from unroll.runs.exchange import onnx_file

STEPS = 500


class Reader:
    """Somebody who has the file alone."""

    def __init__(self, path: Path) -> None:
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = self.session.get_modelmeta().custom_metadata_map
        self.about = {name: json.loads(value) for name, value in about.items()}

    def first(self, rows: int) -> dict[str, np.ndarray[Any, Any]]:
        states = {name: np.array(value, np.float32) for name, value in self.about["first_state"].items()}
        return {name: np.repeat(value[:, None], rows, axis=1) for name, value in states.items()}

    def read(self, ids_TB: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Logits after each token: [T, B, V]."""
        states, logits_TBV = self.first(ids_TB.shape[1]), []
        for token in ids_TB:
            logits, *after = self.session.run(None, {"token": token, **states})
            states = dict(zip(states, after, strict=True))
            logits_TBV.append(logits)
        return np.stack(logits_TBV)


def logits_of_the_run(run: Run, ids_TB: torch.Tensor) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        h_MTBH, _ = run.model.read(ids_TB.unsqueeze(0), run.model.first_state(ids_TB.shape[1]))
        return run.model.head(h_MTBH)[0, ..., : len(run.vocabulary)].numpy()


@pytest.mark.parametrize(("layers", "dense"), [(1, 6), (2, 6), (2, 0)])
@every_cell
def test_onnx_runtime_agrees_over_500_steps(cell: str, peepholes: str, layers: int, dense: int, tmp_path: Path) -> None:
    """With weights that are not chaotic: a net that doubles every rounding error parts from itself in 500 steps."""
    experiment = of_scheme(1, cell=cell, peepholes=peepholes, layers=layers, hidden=12, dense=dense)
    run = random_run(tmp_path / "run", experiment, scale=0.3)
    to_onnx(run, tmp_path / "step.onnx")
    ids_TB = random_ids(STEPS, 3)
    read_TBV = Reader(tmp_path / "step.onnx").read(ids_TB.numpy())
    assert read_TBV.dtype == np.float32
    assert np.ptp(read_TBV[-100:]) > 0.1, "it has not come to rest either"
    assert np.abs(read_TBV - logits_of_the_run(run, ids_TB)).max() < 1e-5


@pytest.mark.parametrize("scheme", [1, 4])
def test_the_metadata_says_how_to_read_and_write_text(scheme: int, tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(scheme, k1=3, k2=5))
    to_onnx(run, tmp_path / "step.onnx")
    reader = Reader(tmp_path / "step.onnx")
    assert (reader.about["kind"], tuple(reader.about["symbols"])) == (run.vocabulary.kind, run.vocabulary.symbols)
    assert (reader.about["k1"], reader.about["k2"], reader.about["sample"]) == (3, 5, run.experiment.scheme.sample)
    for name, (first,) in zip(("h", "c"), zip(*run.model.first_state(1), strict=True), strict=True):
        assert np.array_equal(reader.first(1)[name], first.detach().numpy()), "every bit of the first state"


def test_only_standard_operators_are_in_it(tmp_path: Path) -> None:
    for n, (cell, peepholes) in enumerate([("lstm", "paper"), ("gru", "off"), ("rnn", "off")]):
        to_onnx(random_run(tmp_path / cell, of_scheme(1, cell=cell, peepholes=peepholes)), tmp_path / f"{n}.onnx")
        model = onnx.load(tmp_path / f"{n}.onnx")
        onnx.checker.check_model(model, full_check=True)
        assert {node.domain for node in model.graph.node} == {""}
        assert [(o.domain, o.version) for o in model.opset_import] == [("", onnx_file.OPSET)]
        assert model.producer_name == "unroll"


def test_the_command_writes_what_python_writes(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1))
    result = unroll("export", run.path, "--onnx", tmp_path / "step.onnx")
    assert result.code == 0, result.err
    assert "7 symbols" in result.err
    to_onnx(run, tmp_path / "again.onnx")
    assert (tmp_path / "step.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()


def test_a_double_run_is_written_in_float32(tmp_path: Path) -> None:
    run = random_run(tmp_path / "run", of_scheme(1, precision="float64"))
    to_onnx(run, tmp_path / "step.onnx")
    ids_TB = random_ids(50, 2)
    assert np.abs(Reader(tmp_path / "step.onnx").read(ids_TB.numpy()) - logits_of_the_run(run, ids_TB)).max() < 1e-5


def test_what_cannot_be_written_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, path = random_run(tmp_path / "run", of_scheme(1)), tmp_path / "step.onnx"
    with monkeypatch.context() as patched:
        patched.setattr(onnx_file, "CELLS", {"gru": onnx_file.CELLS["gru"]})
        with pytest.raises(
            ConfigurationError, match="The cell lstm has not been written in ONNX's operators: gru have"
        ):
            to_onnx(run, path)
    with monkeypatch.context() as patched:
        patched.setattr(onnx_file, "LARGEST", 1000)
        with pytest.raises(ConfigurationError, match=r"at most 2 GiB\. These weights are 1,"):
            to_onnx(run, path)
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "onnx", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'unroll-rnn\[onnx\]'"):
            to_onnx(run, path)
    assert not path.exists()
    path.write_text("mine")
    result = unroll("export", run.path, "--onnx", path)
    assert result.code == 2
    assert "exists. Choose another file" in result.err
    assert path.read_text() == "mine"
    with pytest.raises(ConfigurationError, match="is no folder"):
        to_onnx(run, tmp_path / "nowhere" / "step.onnx")


def test_the_loop_of_the_page_draws_text_by_argmax_as_the_run_does(tmp_path: Path) -> None:
    from unroll import sample

    run = random_run(tmp_path / "run", of_scheme(3))
    to_onnx(run, tmp_path / "step.onnx")
    text = sample(run, prompt="abcd", length=40, temperature=0).text
    ids_TB = run.vocabulary.encode("abcd" + text)[:, None].astype(np.int64)
    logits_TBV = Reader(tmp_path / "step.onnx").read(ids_TB)
    likeliest = [run.vocabulary.symbols[i] for i in logits_TBV[3:-1, 0].argmax(-1)]
    assert "".join(likeliest) == text
