"""AMX, imitated with vectors, in one thread, so that the code around it can be tested on any processor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from unroll.engines.cpu import amx, bf16
from unroll.engines.cpu.amx import EDGE, TILE
from unroll.engines.cpu.builder import Code, Value

tiles = torch.zeros(8, EDGE, EDGE)


def imitate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the processor have AMX from now on. Code that was compiled before must be compiled again."""
    monkeypatch.setattr(amx, "available", lambda: True)
    monkeypatch.setattr(amx, "configured", _configured)
    monkeypatch.setattr(amx, "_instruction", _instruction)


@contextmanager
def _configured(_code: Code) -> Iterator[None]:
    yield


def _instruction(code: Code, name: str, *numbers: int, at: Value | None = None, apart: Value | int = 0) -> None:
    from llvmlite import ir

    begin = Value(code, ir.Constant(ir.IntType(64), tiles.data_ptr()).inttoptr(ir.PointerType()))
    tile, *factors = (code.at(begin, number * TILE) for number in numbers)
    apart = code.number(apart) if isinstance(apart, int) else apart
    with code.loop(EDGE) as row:
        tile_row = code.at(tile, row * EDGE)
        if name == "tilezero":
            code.store(code.constant(0.0), tile_row)
        elif name == "tileloadd64" and at is not None:
            code.store(code.load(code.at(at, row * apart)), tile_row)
        elif name == "tilestored64" and at is not None:
            code.store(code.load(tile_row), code.at(at, row * apart))
        else:
            assert name == "tdpbf16ps"
            with code.loop(EDGE) as k:
                word = code.load_spread(code.at(factors[0], row * EDGE + k))
                code.store(
                    bf16.dot(code, word, code.load(code.at(factors[1], k * EDGE)), code.load(tile_row)), tile_row
                )
