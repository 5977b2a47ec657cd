"""One stream alone on a GPU: every product gets blocks of its own, as many as its share of the time asks for.

A block that has one product to do keeps that product's weights in its shared memory, and never waits for another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from unroll.stepping.cuda_weights import COLUMNS, FLOAT, TILE, Place, padded

WARPS, SLICES = 8, 4  # of a block, and into which the terms are divided
CREWS = 2  # of a block's warps, each with tiles of its own
PAIR, MOST_GROUPS = 2, 4  # tiles, and groups, that are multiplied together
MOST_TILES = 32  # of a crew: each is looked after by a lane
SCRATCH = 256 * 16  # bytes of shared memory that each warp of the head, or of a layer that runs on, has for itself
FOR_ONE, FOR_THE_HEAD = 7, 8  # groups, of a layer that runs on and of the head, that a block may read from memory
# Roughly, cycles that a block takes: for a tile of windows with a group and a part of 32 terms; for what comes with
# each pair of tiles of a crew, and for a warp to be the cell. For a part of a group of the head, times four, since
# every token waits for it; of a layer that runs on, a little, since that is done long before the token that it is for.
OF_A_TILE, OF_A_PAIR, OF_A_CELL, OF_THE_HEAD, OF_RUNNING_ON = 13, 600, 250, 80, 5
OF_A_ROUND = 800  # of the head, for which two warps a group are at work
WITHOUT_A_TABLE = 2000  # and to find in the GPU's memory what a symbol means

Way = tuple[Place, int]  # how a product can be divided, and the cycles that it then takes


def apart(
    places: Sequence[Place], blocks: int, room: int, windows: int | None = None, symbols: int = 0
) -> tuple[Place, ...] | None:
    """The layers', dense and out, each with its blocks, of a stream with or without windows. None if it cannot be.

    A block has so many bytes of shared memory.
    """
    *layers, dense, out = places
    left = room - WARPS * SCRATCH

    def head(place: Place, anywhere: bool) -> list[Way]:
        def cycles(way: Place) -> int:
            return -(-2 * way.each // WARPS) * OF_A_ROUND + way.each * way.parts * OF_THE_HEAD

        return _of_one(place, cycles, blocks, left, FOR_THE_HEAD if anywhere else 0)

    def running_on(way: Place) -> int:
        return way.each * way.parts * OF_RUNNING_ON

    # What is read once a token may be read from the GPU's memory, too, the upper layers first, which are the largest.
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
            return _shared_out(ways, blocks, 0 if windows is None else len(layers))
    return None


def _of_one(place: Place, cycles: Callable[[Place], int], blocks: int, room: int, elsewhere: int) -> list[Way]:
    """One row: some groups a block, in its shared memory; or up to so many that are elsewhere."""

    def every() -> Iterator[Place]:
        for each in range(place.groups, 0, -1):
            way = replace(place, each=each, blocks=-(-place.groups // each), resident=0)
            if way.kept <= room:
                yield way
            elif each <= elsewhere:
                yield replace(way, resident=-1)

    return _worthwhile(every(), cycles, blocks)


def _of_windows(place: Place, number: int, blocks: int, room: int, tiles: int, symbols: int) -> list[Way]:
    """Some groups a block, and tiles for each of its crews; what each symbol means is at hand, too, if that fits."""

    def every() -> Iterator[Place]:
        for shares in range(-(-tiles // (CREWS * MOST_TILES)), -(-tiles // CREWS) + 1):
            for together in range(1, place.groups + 1):
                across = -(-place.groups // together)
                way = replace(
                    place, together=together, tiles=-(-tiles // (CREWS * shares)), blocks=across * shares, resident=0
                )
                kept = _kept_of_windows(way)
                table = 4 * COLUMNS * together * (1 if number else symbols)
                if kept + table <= room:
                    yield replace(way, table=kept // FLOAT, shared=kept + table)
                elif kept <= room:
                    yield replace(way, shared=kept)

    def cycles(way: Place) -> int:
        shares = way.blocks // -(-way.groups // way.together)
        products = -(-tiles // shares) * OF_A_TILE * way.together * way.parts
        pairs = -(-way.tiles // PAIR) * -(-way.together // MOST_GROUPS) * OF_A_PAIR
        cells = -(-way.tiles * way.together // SLICES) * OF_A_CELL
        return products + pairs + cells + WITHOUT_A_TABLE * (way.table < 0)

    return _worthwhile(every(), cycles, blocks)


def _kept_of_windows(place: Place) -> int:
    """Bytes of a block of windows, its table aside, as `Part` in cuda_windows.cu has them.

    Weights, the warps' sums of the crews' tiles, the sums of all that wait for their cell, and what it knows of a unit.
    """
    items = CREWS * place.tiles * place.together
    units = place.together * COLUMNS + padded(place.together + CREWS, 4)
    sums = (CREWS * PAIR * SLICES * place.together + items) * TILE * COLUMNS
    return place.together * place.floats * FLOAT + (sums + items * TILE * 4 + units) * FLOAT


def _worthwhile(ways: Iterator[Place], cycles: Callable[[Place], int], blocks: int) -> list[Way]:
    """From the fewest blocks to the most that there are; each way is faster than those of fewer blocks."""
    found: list[Way] = []
    for way in sorted(((way, cycles(way)) for way in ways), key=lambda way: (way[0].blocks, way[1])):
        if way[0].blocks <= blocks and (not found or way[1] < found[-1][1]):
            found.append(way)
    return found


def _shared_out(ways: list[list[Way]], blocks: int, at_once: int) -> tuple[Place, ...]:
    """Blocks go to the product that takes longest, as long as there are enough to make it faster.

    So many of the products go on at once, and if one of them can get no faster, the others need not either; not before
    all else has what it can use.
    """
    chosen = [0] * len(ways)
    spare = blocks - sum(way[0][0].blocks for way in ways)
    unsettled, late = set(range(len(ways))), False
    while unsettled:
        n = max(unsettled, key=lambda n: (not late or n >= at_once, ways[n][chosen[n]][1], -n))
        better = ways[n][chosen[n] : chosen[n] + 2]
        needed = better[-1][0].blocks - better[0][0].blocks
        if len(better) == 1 or needed > spare:
            unsettled.remove(n)
            late = late or n < at_once
        else:
            chosen[n], spare = chosen[n] + 1, spare - needed
    placed: list[Place] = []
    for way, n in zip(ways, chosen, strict=True):
        placed.append(replace(way[n][0], block=placed[-1].block + placed[-1].blocks if placed else 0))
    return tuple(placed)
