"""A run as an ONNX file: one step, with states in and out, for whatever reads ONNX.

    token  int64 [rows]                     what each row reads
    h, c   float [layers, rows, hidden]     the states before; a GRU and a simple RNN have no c
    logits float [rows, symbols]            of each row's next token
    next_h, next_c                          the states after

The graph is written operator by operator, all of them standard. Its metadata holds what a reader needs beside it: the
vocabulary, the first state, the scheme.

Shapes: L layers, H hidden, V vocabulary.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from unroll.base import atomic_files
from unroll.base.errors import ConfigurationError
from unroll.base.version import VERSION
from unroll.model import cells
from unroll.model.head import LEAK
from unroll.runs.exchange.onnx_cells import CELLS
from unroll.runs.loaded import Run, require_run

OPSET, IR = 17, 8  # old enough for runtimes of 2022
LARGEST = 2**31 - 2**20  # bytes of a file: protobuf holds no more
MISSING = "ONNX files need the onnx extra: pip install 'unroll-rnn[onnx]'."


def to_onnx(run: Run, path: str | Path) -> None:
    """Write one step of a run as an ONNX file, in float32."""
    require_run(run)
    path = Path(path)
    if path.exists():
        raise ConfigurationError(f"{path} exists. Choose another file.")
    if not path.absolute().parent.is_dir():
        raise ConfigurationError(f"{path.absolute().parent} is no folder. Choose another file.")
    atomic_files.write(path, content(run))


def content(run: Run) -> bytes:
    """The file's content."""
    onnx, e = _extra(), run.experiment
    if e.cell not in CELLS:
        known = ", ".join(CELLS)
        raise ConfigurationError(
            f"The cell {e.cell} has not been written in ONNX's operators: {known} have. Export a run of those."
        )
    values = run.model.values(0)
    size = sum(4 * math.prod(value.shape) for value in values.values())
    if size > LARGEST:
        raise ConfigurationError(
            f"An ONNX file holds at most 2 GiB. These weights are {size:,} bytes. Export a smaller model."
        )
    graph = _Graph(onnx, values)
    states = cells.load(e.cell, e.peepholes).STATES
    logits, after = _step(graph, run, states)
    kinds, shape = onnx.TensorProto, [e.layers, "rows", e.hidden]
    helper = onnx.helper
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "step",
            [
                helper.make_tensor_value_info("token", kinds.INT64, ["rows"]),
                *(helper.make_tensor_value_info(name, kinds.FLOAT, shape) for name in states),
            ],
            [
                helper.make_tensor_value_info(logits, kinds.FLOAT, ["rows", len(run.vocabulary)]),
                *(helper.make_tensor_value_info(name, kinds.FLOAT, shape) for name in after),
            ],
            list(graph.constants.values()),
        ),
        producer_name="unroll",
        producer_version=VERSION,
        ir_version=IR,
        opset_imports=[helper.make_opsetid("", OPSET)],
    )
    helper.set_model_props(model, _metadata(run, values, states))
    onnx.checker.check_model(model, full_check=True)
    written: bytes = model.SerializeToString()
    return written


def _extra() -> Any:
    """onnx, or how to get it."""
    try:
        return importlib.import_module("onnx")
    except ImportError:
        raise ConfigurationError(MISSING) from None


def _metadata(run: Run, values: Mapping[str, Tensor], states: tuple[str, ...]) -> dict[str, str]:
    """Words for a reader, each a JSON value."""
    e = run.experiment
    first = {name: [values[f"layers.{layer}.{name}0"].float().tolist() for layer in range(e.layers)] for name in states}
    facts = {
        "kind": run.vocabulary.kind,
        "symbols": list(run.vocabulary.symbols),
        "first_state": first,
        "sample": e.scheme.sample,
        "k1": e.scheme.k1,
        "k2": e.scheme.k2,
        "training": e.scheme.training,
        "title": e.title,
    }
    return {name: json.dumps(value) for name, value in facts.items()}


def _step(graph: _Graph, run: Run, states: tuple[str, ...]) -> tuple[str, list[str]]:
    """The operators of one step: the names of the logits and of the states after."""
    op, e, cell = graph.op, run.experiment, CELLS[run.experiment.cell]
    extra_names = cells.load(e.cell, e.peepholes).extra_shapes(e.hidden)
    after = []
    x = ""
    for layer in range(e.layers):
        prefix = f"layers.{layer}."
        state = tuple(op("Gather", name, graph.index(layer), axis=0) for name in states)
        W_x, W_h, b = (graph.weight(prefix + name) for name in ("W_x", "W_h", "b"))
        product = op("MatMul", x, W_x) if layer else op("Gather", W_x, "token", axis=0)
        extra = {
            f"{name}.{n}": graph.row(prefix + name, n) for name, (rows, _) in extra_names.items() for n in range(rows)
        }
        state = cell(op, e.peepholes, op("Add", product, b), op("MatMul", state[0], W_h), state, extra)
        x = state[0]
        after.append(state)
    if e.dense:
        x = op("LeakyRelu", op("Gemm", x, graph.weight("dense.W"), graph.weight("dense.b")), alpha=LEAK)
    logits = op("Gemm", x, graph.weight("out.W"), graph.weight("out.b"), name="logits")
    axis = graph.index([0])
    joined = []
    for name, of_layers in zip(states, zip(*after, strict=True), strict=True):
        apart = [op("Unsqueeze", s, axis) for s in of_layers]
        joined.append(op("Concat", *apart, axis=0, name=f"next_{name}"))
    return logits, joined


class _Graph:
    """Operators and constants on their way into a file."""

    def __init__(self, onnx: Any, values: Mapping[str, Tensor]) -> None:
        self._onnx, self._values = onnx, values
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}

    def op(self, kind: str, *inputs: str, outputs: int = 1, name: str = "", **attributes: Any) -> Any:
        """One more operator: the name of its output, or a list of names where there are several."""
        count = len(self.nodes)
        names = [name or f"{kind}.{count}.{n}" for n in range(outputs)]
        self.nodes.append(self._onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names if outputs > 1 else names[0]

    def weight(self, name: str) -> str:
        """A parameter of the run."""
        return self._constant(name, self._values[name].float().numpy())

    def row(self, name: str, n: int) -> str:
        """One row of a parameter."""
        return self._constant(f"{name}.{n}", self._values[name][n].float().numpy())

    def index(self, n: int | list[int]) -> str:
        """An index, or a list of them."""
        return self._constant(f"index.{n}", np.array(n, np.int64))

    def _constant(self, name: str, value: Any) -> str:
        # from_array wants numbers in a row, and makes a row of a single one.
        ordered = np.ascontiguousarray(value).reshape(value.shape)
        self.constants.setdefault(name, self._onnx.numpy_helper.from_array(ordered, name))
        return name
