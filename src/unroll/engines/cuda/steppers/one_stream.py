"""Divides a GPU's blocks among the products of a single stream, in proportion to the products' time.

A block with one product keeps that product's weights in its shared memory and never waits for those of another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import product

from unroll.engines.cuda.steppers.weights import CHUNK, COLUMNS, FLOAT, TERMS, TILE, Place

WARPS = 8  # warps of a block without windows
GROUPS, MOST_TILES = 4, 32  # groups of columns, and tiles of rows, of a block of windows; a lane serves each tile
MOST_AT_ONCE, FEWEST_SLOTS, MOST_SLOTS = 13, 2, 8  # tiles multiplied at a time, and slots for arriving chunks
EARLY = 2  # tiles of an upper layer that come first
SCRATCH = 256 * 16  # bytes of shared memory for each warp of the head, or of a layer that runs on
FOR_ONE, FOR_THE_HEAD = 7, 8  # groups of a layer that runs on, and of the head, that a block may read from memory
# Rough numbers of cycles of a block of windows: for 16 terms in a pass over tiles, and for each of these tiles; for
# each arrival of chunks, and for the wait until they have arrived; and for the cell. The cost of a part of a group of
# the head counts four times, since every token waits for it; that of a layer that runs on counts little, since it is
# done long before its token.
OF_A_CHUNK, OF_A_TILE, OF_A_STAGE, OF_COMING, OF_A_CELL = 50, 14, 60, 1100, 200
OF_THE_HEAD, OF_RUNNING_ON = 80, 5
MEANWHILE = 2  # most of the windows' time overlaps with the head and the choice, and counts for less
OF_A_ROUND = 800  # cycles of a round of the head, with two warps for each group
WITHOUT_A_TABLE = 2000  # cycles to look a symbol's inputs up in the GPU's memory

Way = tuple[Place, int]  # a product with its division, and the cycles that it takes


def divide_blocks(
    places: Sequence[Place], blocks: int, room: int, windows: int | None = None, symbols: int = 0
) -> tuple[Place, ...] | None:
    """Give each layer, dense and out their blocks, for a stream with or without windows; None if they do not fit.

    A block has `room` bytes of shared memory.
    """
    *layers, dense, out = places
    left = room - WARPS * SCRATCH

    def head(place: Place, anywhere: bool) -> list[Way]:
        def cycles(way: Place) -> int:
            return -(-2 * way.each // WARPS) * OF_A_ROUND + way.each * way.parts * OF_THE_HEAD

        return _of_one(place, cycles, blocks, left, FOR_THE_HEAD if anywhere else 0)

    def running_on(way: Place) -> int:
        return way.each * way.parts * OF_RUNNING_ON

    # Weights that are read once a token may stay in the GPU's memory: first those of upper layers, which are the
    # largest.
    if windows is None:
        freed = [*range(len(layers) + 1), *[len(layers)] * 2]
        attempts = [
            [
                _of_one(place, running_on, blocks, left, FOR_ONE if len(layers) - n <= free else 0)
                for n, place in enumerate(layers)
            ]
            for free in freed
        ]
    else:
        tiles = -(-windows // TILE)
        attempts = [[_of_windows(place, n, blocks, room, tiles, symbols) for n, place in enumerate(layers)]] * 3
    last = len(attempts) - 1
    for n, of_layers in enumerate(attempts):
        ways = [*of_layers, head(dense, n >= last - 1), head(out, n == last)]
        if all(ways) and sum(way[0][0].blocks for way in ways) <= blocks:
            return _fastest_division(ways, blocks, 0 if windows is None else len(layers))
    return None


def _of_one(place: Place, cycles: Callable[[Place], int], blocks: int, room: int, elsewhere: int) -> list[Way]:
    """Ways for one row: the groups of a block in its shared memory, or up to `elsewhere` groups in the GPU's memory."""

    def every() -> Iterator[Place]:
        for each in range(place.groups, 0, -1):
            way = replace(place, each=each, blocks=-(-place.groups // each), resident=0)
            if way.kept <= room:
                yield way
            elif each <= elsewhere:
                yield replace(way, resident=-1)

    return _worthwhile(every(), cycles, blocks)


def _of_windows(place: Place, number: int, blocks: int, room: int, tiles: int, symbols: int) -> list[Way]:
    """Ways for windows: four groups and a number of tiles for each block, and the symbols' inputs if they fit.

    Above the first layer, two blocks do half of the terms each.
    """
    pair = 2 if number else 1
    chunks = place.parts * TERMS // CHUNK // pair
    early = EARLY if number else 0
    stages = [n for n in (4, 2, 1) if chunks % n == 0]

    def every() -> Iterator[Place]:
        for tile_groups in range(-(-tiles // MOST_TILES), tiles + 1):
            most = -(-tiles // tile_groups)
            taken = place.groups // GROUPS * pair * tile_groups
            if taken > blocks:
                break
            at_most = range(1, min(most, MOST_AT_ONCE) + 1)
            for at_once, stage, slots in product(at_most, stages, range(FEWEST_SLOTS, MOST_SLOTS + 1)):
                at_a_time = max(at_once * stage, early)
                way = replace(place, tiles=most, at_once=at_once, slots=slots, room=at_a_time, blocks=taken, resident=0)
                kept = _kept_of_windows(way, chunks)
                table = 0 if number else 4 * GROUPS * 4 * FLOAT * symbols
                if kept + table <= room:
                    yield replace(way, table=kept // FLOAT, shared=kept + table)
                elif kept <= room:
                    yield replace(way, shared=kept)

    def of_a_pass(way: Place, tiles: int) -> int:
        stage = next(n for n in stages if n * tiles <= way.room)
        at_work = stage * (OF_A_CHUNK + tiles * OF_A_TILE)
        return OF_COMING + chunks // stage * (OF_A_STAGE + max(at_work, (at_work + OF_COMING) // way.slots))

    def cycles(way: Place) -> int:
        others = max(0, way.tiles - early)
        passes = -(-others // way.at_once)
        products = passes * of_a_pass(way, -(-others // passes)) if passes else 0
        products += of_a_pass(way, min(early, way.tiles)) if early else 0
        return (products + way.tiles * OF_A_CELL) // MEANWHILE + WITHOUT_A_TABLE * (way.table < 0)

    return _worthwhile(every(), cycles, blocks)


def _kept_of_windows(place: Place, chunks: int) -> int:
    """Bytes of a block of windows without its table, as in `Part` of windows.cu.

    They hold weights, arriving chunks, the sums of all tiles that wait for their cell, and their states.
    """
    arriving = place.slots * place.room * TILE * CHUNK * FLOAT
    waiting = place.tiles * GROUPS * TILE * (COLUMNS + 4) * FLOAT
    return GROUPS * COLUMNS * chunks * CHUNK * FLOAT + arriving + waiting


def _worthwhile(ways: Iterator[Place], cycles: Callable[[Place], int], blocks: int) -> list[Way]:
    """Sort ways by their blocks; keep those that fit and are faster than all ways with fewer blocks."""
    kept: list[Way] = []
    for way in sorted(((way, cycles(way)) for way in ways), key=lambda way: (way[0].blocks, way[1])):
        if way[0].blocks <= blocks and (not kept or way[1] < kept[-1][1]):
            kept.append(way)
    return kept


def _fastest_division(ways: list[list[Way]], blocks: int, at_once: int) -> tuple[Place, ...]:
    """Give blocks to the product that takes longest, as long as enough are left to make it faster.

    The first `at_once` products run at the same time: if one of them can get no faster, the others get blocks only
    after all other products have what they can use.
    """
    chosen = [0] * len(ways)
    blocks_left = blocks - sum(way[0][0].blocks for way in ways)
    unsettled = set(range(len(ways)))
    late = False
    while unsettled:
        n = max(unsettled, key=lambda n: (not late or n >= at_once, ways[n][chosen[n]][1], -n))
        better = ways[n][chosen[n] : chosen[n] + 2]
        needed = better[-1][0].blocks - better[0][0].blocks
        if len(better) == 1 or needed > blocks_left:
            unsettled.remove(n)
            late = late or n < at_once
        else:
            chosen[n] = chosen[n] + 1
            blocks_left = blocks_left - needed
    placed: list[Place] = []
    for way, n in zip(ways, chosen, strict=True):
        placed.append(replace(way[n][0], block=placed[-1].block + placed[-1].blocks if placed else 0))
    return tuple(placed)
