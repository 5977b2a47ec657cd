"""A tile size is used only where it rounds as the largest does, in every place."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from unroll.engines.cpu.steppers import tiles

WEIGHTS = [torch.linspace(-1, 1, 35).view(5, 7), torch.linspace(-2, 1, 70).view(2, 5, 7)]


def rounding_by(shift, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products that are off by an amount that depends on the number of rows, and in each row on its place."""

    def add_product(out, x, W):
        rows = x.shape[-2]
        off_R1 = torch.tensor([shift(rows, place) for place in range(rows)]).unsqueeze(-1) * 1e-3
        out += x[..., :1] * W[..., :1, :] + off_R1

    monkeypatch.setattr(tiles, "add_product", add_product)


def test_sizes_that_round_alike_may_be_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, place: 0, monkeypatch)
    assert tiles.alike(WEIGHTS) == (2, 4, 8, 16, 32, 64)


def test_a_size_that_rounds_otherwise_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, place: rows in (2, 16), monkeypatch)
    assert tiles.alike(WEIGHTS) == (4, 8, 32, 64)


def test_a_size_whose_last_place_rounds_otherwise_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, place: rows == 8 and place == 7, monkeypatch)
    assert tiles.alike(WEIGHTS) == (2, 4, 16, 32, 64)


def test_where_places_of_the_largest_tile_round_differently_rows_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rounding_by(lambda rows, place: place == 63, monkeypatch)
    assert tiles.alike(WEIGHTS) == ()
    assert tiles.plan(3, ()) == [(0, 1), (1, 1), (2, 1)]


@given(st.integers(1, 500), st.sets(st.sampled_from(tiles.SIZES)))
def test_tiles_cover_every_row_once_and_reach_past_the_last_as_little_as_the_sizes_allow(
    rows: int, some: set[int]
) -> None:
    sizes = (*sorted(some), tiles.LARGEST)
    planned = tiles.plan(rows, sizes)
    places = [start + n for start, size in planned for n in range(size)]
    assert places[:rows] == list(range(rows))
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
