"""One stream alone on a GPU: every product gets blocks of its own, as many as its share of the time asks for.

A block that has one product to do keeps that product's weights in its shared memory, and never waits for another's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from unroll.stepping.cuda_weights import Place

TILE, TOGETHER = 8, 2  # windows, and groups of columns, that a warp does at once
FOR_WINDOWS, FOR_ONE = 8, 7  # warps of a block that do windows, and that do a layer of a stream that runs on
# Roughly, cycles that a block takes for a part of 32 terms: of as many items as it has warps for windows; of one item
# of the head, times four, since every token waits for it; of an item of a layer that runs on, a little, since that is
# done long before the token comes that it is for.
OF_WINDOWS, OF_THE_HEAD, OF_RUNNING_ON = 700, 80, 5


def apart(places: Sequence[Place], blocks: int, room: int, windows: int | None) -> tuple[Place, ...] | None:
    """The layers', dense and out, each with its blocks, of a stream with or without windows. None if it cannot be."""
    layers = len(places) - 2
    if windows is None:
        # What is read once a token may be read from the GPU's memory, too; the upper layers are the largest.
        rates = [OF_RUNNING_ON] * layers + [OF_THE_HEAD] * 2
        attempts = [[layers - free <= n < layers for n in range(layers + 2)] for free in range(layers + 1)]
    else:
        tiles = 2 * -(-windows // (2 * TILE))  # an even number, since two neighbours take turns
        places = [replace(p, together=TOGETHER, tiles=tiles) if n < layers else p for n, p in enumerate(places)]
        rates = [OF_WINDOWS] * layers + [OF_THE_HEAD] * 2
        attempts = [[False] * (layers + 2)]
    for anywhere in attempts:
        ways = [_ways(place, blocks, room, free) for place, free in zip(places, anywhere, strict=True)]
        if sum(way[0].blocks if way else blocks + 1 for way in ways) <= blocks:
            placed = _shared_out(ways, rates, blocks)
            if all(place.resident == 0 or place.each <= FOR_ONE for place in placed):
                return placed
    return None


def _ways(place: Place, blocks: int, room: int, anywhere: bool) -> list[Place]:
    """How the product can be divided among ever more blocks; its weights are in their shared memory, or `anywhere`."""
    ways: list[Place] = []
    for each in range(place.items, 0, -1):
        # A block's items may begin with any tile; or every block has tiles of the same groups only, and fewer groups.
        whole = -(-place.tiles // each) * each
        for tiles in (place.tiles, whole) if each < place.tiles else (place.tiles,):
            way = replace(place, each=each, tiles=tiles, resident=0)
            way = replace(way, blocks=-(-way.items // each))
            fewest = ways[-1].blocks if ways else 0
            if way.kept > room and anywhere:
                way = replace(way, resident=-1)
            if (way.kept <= room or anywhere) and fewest < way.blocks <= blocks:
                ways.append(way)
                break
    return ways


def _cycles(place: Place, rate: int) -> int:
    """What the product takes each token."""
    return (-(-place.each // FOR_WINDOWS) if rate == OF_WINDOWS else place.each) * place.parts * rate


def _shared_out(ways: list[list[Place]], rates: list[int], blocks: int) -> tuple[Place, ...]:
    """Blocks go to the product that takes longest, as long as that makes it faster; what is left, to lighten any."""
    chosen = [way[0] for way in ways]
    spare = blocks - sum(place.blocks for place in chosen)
    for costs in (_cycles, lambda place, rate: place.each * place.parts):
        unsettled = set(range(len(ways)))
        while unsettled:
            n = max(unsettled, key=lambda n: (costs(chosen[n], rates[n]), -n))
            now = costs(chosen[n], rates[n])
            better = next((way for way in ways[n] if costs(way, rates[n]) < now), None)
            if better is None or better.blocks - chosen[n].blocks > spare:
                unsettled.remove(n)
            else:
                chosen[n], spare = better, spare - better.blocks + chosen[n].blocks
    placed: list[Place] = []
    for place in chosen:
        placed.append(replace(place, block=placed[-1].block + placed[-1].blocks if placed else 0))
    return tuple(placed)
