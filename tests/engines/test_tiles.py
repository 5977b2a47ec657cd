"""A tile size is used only if each of its rows rounds like the first row of the largest tile."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unroll.engines.cpu.steppers import tiles

WEIGHTS = [torch.linspace(-1, 1, 35).view(5, 7), torch.linspace(-2, 1, 70).view(2, 5, 7)]


def rounding_by(shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products be off by an amount that depends on the number of rows and on the row's position."""

    def add_product(out, x, W):
        rows = x.shape[-2]
        off_R1 = torch.tensor([shift(rows, position) for position in range(rows)]).unsqueeze(-1) * 1e-3
        out += x[..., :1] * W[..., :1, :] + off_R1

    monkeypatch.setattr(tiles, "add_product", add_product)


def test_sizes_that_round_alike_may_be_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, position: 0, monkeypatch)
    assert tiles.alike(WEIGHTS) == (2, 4, 8, 16, 32, 64)


def test_a_size_that_rounds_differently_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, position: rows in (2, 16), monkeypatch)
    assert tiles.alike(WEIGHTS) == (4, 8, 32, 64)


def test_a_size_whose_last_row_rounds_differently_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, position: rows == 8 and position == 7, monkeypatch)
    assert tiles.alike(WEIGHTS) == (2, 4, 16, 32, 64)


def test_rows_go_one_by_one_if_the_rows_of_the_largest_tile_round_differently(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, position: position == 63, monkeypatch)
    assert tiles.alike(WEIGHTS) == ()
    assert tiles.plan(3, ()) == [(0, 1), (1, 1), (2, 1)]


@given(st.integers(1, 500), st.sets(st.sampled_from(tiles.SIZES)))
def test_tiles_cover_every_row_once_and_reach_past_the_last_as_little_as_the_sizes_allow(
    rows: int, smaller: set[int]
) -> None:
    sizes = (*sorted(smaller), tiles.LARGEST)
    planned = tiles.plan(rows, sizes)
    covered = [start + n for start, size in planned for n in range(size)]
    assert covered[:rows] == list(range(rows))
    assert all(size in sizes for _, size in planned)
    last = planned[-1][1]
    left = rows - planned[-1][0]
    assert not [size for size in sizes if left <= size < last]


def test_one_product_and_several_at_once_add_to_what_is_there() -> None:
    x = torch.linspace(0, 1, 15).view(3, 5)
    for W in WEIGHTS:
        out = torch.ones(*W.shape[:-2], 3, 7)
        tiles.add_product(out, tiles.shared(x, len(W)) if W.dim() == 3 else x, W)
        assert torch.allclose(out, 1 + x @ W)
