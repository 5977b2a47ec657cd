"""One stream on a GPU: blocks cover everything once, no block has two products, and its shared memory suffices."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.engines.cuda.steppers.one_stream import (
    EARLY,
    FOR_ONE,
    FOR_THE_HEAD,
    GROUPS,
    MOST_AT_ONCE,
    MOST_SLOTS,
    MOST_TILES,
    SCRATCH,
    WARPS,
    divide_blocks,
)
from unroll.engines.cuda.steppers.weights import TILE, Place

H200, ROOM, SYMBOLS = 132, 228_000, 85  # multiprocessors, and bytes of a block's shared memory


def products(hidden: int, layers: int, dense: int = 1024, symbols: int = 96) -> list[Place]:
    """The places that `Weights` would make."""
    parts = hidden // 32
    places = [Place(0, 0, groups=hidden // 4, parts=parts * (1 + (n > 0))) for n in range(layers)]
    return [*places, Place(0, 0, groups=dense // 16, parts=parts), Place(0, 0, groups=symbols // 16, parts=dense // 32)]


def work_of_blocks(place: Place, upper: bool, tiles: int) -> list[tuple[int, int, range]]:
    """The half of the terms, the first group and the tiles of each block, by the kernel's rule."""
    across, pair = place.groups // GROUPS, 2 if upper else 1
    stretches = place.blocks // (across * pair)
    work = []
    for number in range(place.blocks):
        stretch = number // (pair * across)
        block_tiles = range(stretch * tiles // stretches, (stretch + 1) * tiles // stretches)
        work.append((number % pair, number // pair % across * GROUPS, block_tiles))
    return work


@given(
    st.integers(1, 20).map(lambda n: 32 * n),
    st.integers(1, 3),
    st.integers(1, 40).map(lambda n: 32 * n),
    st.none() | st.integers(17, 600),
    st.integers(5, 200),
    st.integers(40_000, 230_000),
)
def test_blocks_cover_everything_once_and_have_memory_for_what_they_keep(
    hidden: int, layers: int, dense: int, windows: int | None, blocks: int, room: int
) -> None:
    before = products(hidden, layers, dense)
    placed = divide_blocks(before, blocks, room, windows, SYMBOLS)
    if placed is None:
        return
    end = 0
    for n, (old, place) in enumerate(zip(before, placed, strict=True)):
        assert place.block == end, "one after another, in the kernel's order"
        end += place.blocks
        assert (place.groups, place.parts) == (old.groups, old.parts)
        if windows is None or n >= layers:
            assert (place.blocks - 1) * place.each < place.groups <= place.blocks * place.each
            assert place.kept + WARPS * SCRATCH <= room
            if place.resident == -1:
                assert place.each <= (FOR_ONE if n < layers else FOR_THE_HEAD)
            continue
        tiles = -(-windows // TILE)
        done = Counter(
            (half, group, tile)
            for half, group, block_tiles in work_of_blocks(place, n > 0, tiles)
            for tile in block_tiles
        )
        halves, groups = range(2 if n else 1), range(0, place.groups, GROUPS)
        assert done == {(half, group, tile): 1 for half in halves for group in groups for tile in range(tiles)}
        tile_counts = [len(block_tiles) for _, _, block_tiles in work_of_blocks(place, n > 0, tiles)]
        assert min(tile_counts) > 0
        assert max(tile_counts) == place.tiles <= MOST_TILES
        assert place.block % 2 == 0, "pairs are of two neighbours, the first of them even"
        assert 1 <= place.at_once <= min(place.tiles, MOST_AT_ONCE)
        assert place.room >= max(place.at_once, min(EARLY, place.tiles) if n else 0)
        assert 2 <= place.slots <= MOST_SLOTS
        assert GROUPS * place.floats * 4 // len(halves) + place.slots * place.room * 512 < place.shared <= room
        assert place.resident == 0
    assert end <= blocks


@pytest.mark.parametrize("windows", [None, 100])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("hidden", [128, 512])
def test_the_papers_models_fit_an_h200_with_all_their_weights_and_symbols_on_chip(
    hidden: int, layers: int, windows: int | None
) -> None:
    placed = divide_blocks(products(hidden, layers), H200, ROOM, windows, SYMBOLS)
    assert placed is not None
    assert all(place.resident == 0 for place in placed)
    if windows:
        assert placed[0].table >= 0


def test_the_papers_windows_are_multiplied_all_at_once_and_the_head_is_spread() -> None:
    layer, dense, out = divide_blocks(products(512, 1), H200, ROOM, 100, SYMBOLS)
    assert layer.at_once == layer.tiles <= 7
    assert max(dense.each, 2 * out.each) <= 2
    first, upper, dense, out = divide_blocks(products(512, 2), H200, ROOM, 100, SYMBOLS)
    assert first.at_once == upper.at_once + EARLY == 13
    assert max(dense.each, 2 * out.each) <= 3


def test_the_head_of_a_gpu_with_little_shared_memory_is_read_from_its_memory() -> None:
    *_, dense, out = divide_blocks(products(512, 1), 128, 97_000)
    assert out.resident == -1
    assert max(dense.each, out.each) <= FOR_THE_HEAD


def test_products_that_do_not_fit_get_no_blocks() -> None:
    assert divide_blocks(products(512, 3), H200, ROOM, 100, SYMBOLS) is None
    assert divide_blocks(products(32, 1), 2, ROOM, None) is None
