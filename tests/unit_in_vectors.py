"""A processor's matrix unit, played by its vectors, in one thread: what surrounds the unit can be tested anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from unroll.engines.cpu import amx, bf16
from unroll.engines.cpu.amx import EDGE, TILE
from unroll.engines.cpu.builder import Code, Value

tiles = torch.zeros(8, EDGE, EDGE)


def play(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on there is such a unit. Code that was made before must be made anew."""
    monkeypatch.setattr(amx, "available", lambda: True)
    monkeypatch.setattr(amx, "configured", _configured)
    monkeypatch.setattr(amx, "_do", _do)


@contextmanager
def _configured(_code: Code) -> Iterator[None]:
    yield


def _do(code: Code, name: str, *numbers: int, at: Value | None = None, apart: Value | int = 0) -> None:
    from llvmlite import ir

    begin = Value(code, ir.Constant(ir.IntType(64), tiles.data_ptr()).inttoptr(ir.PointerType()))
    own, *factors = (code.at(begin, number * TILE) for number in numbers)
    apart = code.number(apart) if isinstance(apart, int) else apart
    with code.loop(EDGE) as row:
        mine = code.at(own, row * EDGE)
        if name == "tilezero":
            code.store(code.constant(0.0), mine)
        elif name == "tileloadd64" and at is not None:
            code.store(code.load(code.at(at, row * apart)), mine)
        elif name == "tilestored64" and at is not None:
            code.store(code.load(mine), code.at(at, row * apart))
        else:
            assert name == "tdpbf16ps"
            with code.loop(EDGE) as k:
                word = code.load_spread(code.at(factors[0], row * EDGE + k))
                code.store(bf16.dot(code, word, code.load(code.at(factors[1], k * EDGE)), code.load(mine)), mine)
