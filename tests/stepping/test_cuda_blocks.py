"""One stream on a GPU: every item is some block's, no block has two products, and what a block keeps fits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unroll.stepping.cuda_blocks import FOR_ONE, TILE, TOGETHER, apart
from unroll.stepping.cuda_weights import Place

H200, ROOM = 132, 179_000  # multiprocessors, and bytes of shared memory for weights


def products(hidden: int, layers: int, dense: int = 1024, symbols: int = 96) -> list[Place]:
    """As `Weights` has them."""
    parts = hidden // 32
    places = [Place(0, 0, groups=hidden // 4, parts=parts * (1 + (n > 0))) for n in range(layers)]
    return [*places, Place(0, 0, groups=dense // 16, parts=parts), Place(0, 0, groups=symbols // 16, parts=dense // 32)]


def groups_of(place: Place, block: int) -> set[int]:
    """The groups that a block touches, by the kernel's rule."""
    first = (block - place.block) * place.each
    items = range(first, min(first + place.each, place.items))
    return {item // place.tiles * place.together + n for item in items for n in range(place.together)}


@given(
    st.integers(1, 20).map(lambda n: 32 * n),
    st.integers(1, 3),
    st.integers(1, 40).map(lambda n: 32 * n),
    st.none() | st.integers(17, 300),
    st.integers(5, 200),
    st.integers(10_000, 200_000),
)
def test_blocks_share_out_all_items_and_keep_what_they_need(
    hidden: int, layers: int, dense: int, windows: int | None, blocks: int, room: int
) -> None:
    before = products(hidden, layers, dense)
    placed = apart(before, blocks, room, windows)
    if placed is None:
        return
    end = 0
    for old, place in zip(before, placed, strict=True):
        assert place.block == end, "one behind the other, in the kernel's order"
        end += place.blocks
        assert (place.groups, place.parts) == (old.groups, old.parts)
        assert (place.blocks - 1) * place.each < place.items <= place.blocks * place.each, (
            "every block has something to do"
        )
        touched = [groups_of(place, place.block + n) for n in range(place.blocks)]
        assert set().union(*touched) == set(range(place.groups))
        kept = max(len(groups) for groups in touched) * place.floats * 4
        assert kept <= place.kept
        assert place.kept <= room or (place.resident == -1 and windows is None and place.each <= FOR_ONE)
    assert end <= blocks
    for place in placed[:layers]:
        assert place.together == (1 if windows is None else TOGETHER)
        assert place.tiles >= (1 if windows is None else -(-windows // TILE)), "no window is left out"


@pytest.mark.parametrize("windows", [None, 100])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("hidden", [128, 512])
def test_the_papers_models_fit_an_h200_with_all_their_weights_on_chip(
    hidden: int, layers: int, windows: int | None
) -> None:
    placed = apart(products(hidden, layers), H200, ROOM, windows)
    assert placed is not None
    assert all(place.resident == 0 for place in placed)


def test_the_papers_windows_leave_no_scheduler_more_than_two_tiles() -> None:
    layer, dense, out = apart(products(512, 1), H200, ROOM, 100)
    assert layer.each == 8
    assert layer.tiles % 2 == 0, "so that of two neighbours, which take turns, one is even and one odd"
    assert max(dense.each, 2 * out.each) <= 4, "and the head, which every token waits for, is spread"


def test_what_does_not_fit_is_said_so() -> None:
    assert apart(products(512, 3), H200, ROOM, 100) is None
    assert apart(products(32, 1), 2, ROOM, None) is None
