"""A layer's time loops as machine code: see `builder.py`, and `cells/` for one step and its record.

Shapes: M runs, T time, B rows, H hidden (padded), G columns of a record, X columns of a record that inputs fill.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from unroll.engines.cpu.builder import Code, Value, Variable
from unroll.engines.cpu.cells import Before, CellStep
from unroll.engines.cpu.compiler import make
from unroll.engines.cpu.products import Begin, columns_of, left_side, product
from unroll.engines.cpu.transposed_products import (
    Terms,
    add_transposed_product,
    clear,
    rows_of_block,
    spaced,
)


def forward(
    code: Code,
    records: Value,  # [M, T, B, G]
    h: Value,  # [M, T + 1, B, H]: begins with the first state
    c: Value,  # the same, for a cell with a second state
    kept: Value,  # [M, T, B, H], for a cell with KEPT
    W: Value,  # W_h, packed
    w: Value,  # [M, EXTRA, H]
    inputs: Value,  # [M, V, X]: x·W_x + b of each symbol; in upper layers [M, X]: b
    x: Value,  # [M, T, B]: the symbols; in upper layers [M, T, B, K]
    W_x: Value,  # in upper layers [M, K, X], packed
    room: Value,  # [rows, H or K]: see `left_side`
    first: Value,  # the first row to do, of one run
    rows: Value,  # how many rows to do
    T: Value,
    B: Value,
    H: Value,
    K: Value,
    *,
    cell: CellStep,
    looks_up: bool,
) -> None:
    """Take rows of a layer through all time steps; the first layer looks its `inputs` up."""
    G = H * cell.groups
    X = H * len(cell.INPUTS)
    both = cell.both
    wide = code.wide()
    rest = cell.groups - both.stop  # groups that h alone fills
    states = (h, c)[: cell.STATES]
    with code.loop(T) as n:
        before = n * B + first
        record = code.at(records, before * G)
        sums = code.at(record, H * both.start)
        if looks_up:
            begin = Begin(code.at(inputs, H * both.start), X, code.at_index(x, before))
        else:
            x_left = left_side(code, code.at(x, before * K), rows, K, room)
            product(code, record, x_left, W_x, rows, K, X, Begin(inputs, code.number(0)), G)
            begin = Begin(sums, G)
        left = left_side(code, code.at(h, before * H), rows, H, room)
        product(code, sums, left, W, rows, H, H * len(both), begin, G)
        if rest:
            W_rest = columns_of(code, W, H * len(both), H)
            goal = code.at(record, H * both.stop)
            product(code, goal, left, W_rest, rows, H, H * rest, None, G)
        with code.loop(rows) as r:
            row = before + r
            row_record = code.at(record, r * G)
            symbol = code.at(inputs, code.load_index(x, row) * X) if looks_up else row_record
            with code.loop(H // wide.lanes) as v:
                j = v * wide.lanes
                groups = [code.at(row_record, H * group + j) for group in range(cell.groups)]
                # Groups that the symbol alone fills were not copied.
                of_symbol = [code.at(symbol, H * group + j) for group in range(both.start)]
                after = cell.forward(
                    wide,
                    [wide.load(group) for group in (*of_symbol, *groups[both.start :])],
                    [wide.load(code.at(s, row * H + j)) for s in states],
                    [wide.load(code.at(w, H * k + j)) for k in range(cell.EXTRA)],
                )
                goals = [*groups, *(code.at(s, (row + B) * H + j) for s in states)]
                goals += [code.at(kept, row * H + j)] * cell.KEPT
                for value, goal in zip((*after.record, *after.state, *after.kept), goals, strict=True):
                    if value is not None:
                        wide.store(value, goal)


def backward(
    code: Code,
    records: Value,  # [M, T, B, G]: gradients overwrite them
    h: Value,  # [M, T + 1, B, H]
    c: Value,  # the same, for a cell with a second state
    kept: Value,  # [M, T, B, H], for a cell with KEPT
    d_out: Value,  # [M, S, B, H]: the gradient from above of h of the last S steps
    d_h: Value,  # [M, B, H]: at the end the gradient of the first h
    d_c: Value,  # the same, of the first c
    W: Value,  # W_h transposed, packed
    w: Value,  # [M, EXTRA, H]
    d_w: Value,  # [EXTRA, H], rows spaced, as in the other gradients of weights
    d_W: Value,  # [H, G]: the gradient of W_h, in the columns that h fills
    x: Value,  # [M, T, B]: the symbols; in upper layers [M, T, B, K]
    W_x: Value,  # in upper layers [M, X, K]: transposed, packed
    d_x: Value,  # as x
    d_W_x: Value,  # [K, G]: in its first X columns
    d_b: Value,  # in upper layers [G]: in its first X columns
    room: Value,  # [rows, G]
    clip: Value,  # the address of a gradient's bound
    first: Value,  # the first row to do
    rows: Value,  # how many rows to do
    T: Value,
    S: Value,
    B: Value,
    H: Value,
    K: Value,  # in the first layer: the number of symbols
    together: Value,  # steps of a block
    *,
    cell: CellStep,
    looks_up: bool,
    sums_weights: bool,
) -> None:
    """Take rows of a layer back through all time steps; if `sums_weights`, add up the weights' gradients over them.

    Those are added up block by block, while the block's rows are in the cache.
    """
    G = H * cell.groups
    X = H * len(cell.INPUTS)
    recurrent = H * len(cell.RECURRENT)
    wide = code.wide()
    h_columns = H * cell.both.start  # the first column that h fills
    states = (h, c)[: cell.STATES]
    d_states = (d_h, d_c)[: cell.STATES]
    bound = wide.load_spread(clip)
    arriving = [(code.at(d, first * H), rows * H) for d in d_states]
    H_apart, G_apart = (spaced(n, code.lanes) for n in (H, G))
    added = [(d_w, H_apart * cell.EXTRA)] + [(d_W, H * G_apart), (d_W_x, K * G_apart)] * sums_weights
    for sums, elements in arriving + added + [(d_b, G)] * (not looks_up):
        clear(code, sums, elements)
    with code.loop((T + together - 1) // together, backwards=True) as block:
        begin = block * together
        steps = (T - begin).at_most_number(together)
        with code.loop(steps, backwards=True) as n:
            before = (begin + n) * B + first
            record = code.at(records, before * G)
            d_h_rows = code.at(d_h, first * H)
            with code.loop((begin + n + S) // T):  # once or not at all
                _add(code, d_h_rows, code.at(d_out, (before - (T - S) * B) * H), rows * H)
            with code.loop(rows) as r, code.loop(H // wide.lanes) as v:
                j, row = v * wide.lanes, before + r
                groups = [code.at(record, r * G + H * group + j) for group in range(cell.groups)]
                d_goals = [code.at(d, (first + r) * H + j) for d in d_states]
                earlier, later = ([wide.load(code.at(s, at * H + j)) for s in states] for at in (row, row + B))
                back = cell.backward(
                    wide,
                    Before(
                        [wide.load(group) for group in groups],
                        [wide.load(code.at(kept, row * H + j)) for _ in range(cell.KEPT)],
                        earlier,
                        later,
                        [wide.load(goal) for goal in d_goals],
                        [wide.load(code.at(w, H * k + j)) for k in range(cell.EXTRA)],
                        bound,
                    ),
                )
                for k, (a, b) in enumerate(back.d_w):
                    goal = code.at(d_w, H_apart * k + j)
                    wide.store(wide.fma(a, b, wide.load(goal)), goal)
                for value, goal in zip((*back.d_state, *back.record), (*d_goals, *groups), strict=True):
                    if value is not None:
                        wide.store(value, goal)
            through_state = Begin(d_h_rows, H) if back.d_state[0] is not None else None
            d_left = left_side(code, code.at(record, h_columns), rows, recurrent, room, G)
            product(code, d_h_rows, d_left, W, rows, recurrent, H, through_state)
            if not looks_up:
                if cell.INPUTS != cell.RECURRENT:
                    d_left = left_side(code, record, rows, X, room, G)
                product(code, code.at(d_x, before * K), d_left, W_x, rows, X, K)
        row = begin * B + first
        terms = Terms(rows, steps, B)
        d_record = code.at(records, row * G)
        if sums_weights:
            _add_weights(code, d_W, code.at(h, row * H), d_record, terms, H, G, h_columns, recurrent)
        if sums_weights and looks_up:
            with code.loop(steps) as s, code.loop(rows) as r:
                symbol = code.load_index(x, row + s * B + r)
                _add(code, code.at(d_W_x, symbol * G_apart), code.at(d_record, (s * B + r) * G), X)
        elif sums_weights:
            _add_weights(code, d_W_x, code.at(x, row * K), d_record, terms, K, G, code.number(0), X)
        if not looks_up:
            _add_rows(code, d_b, d_record, terms, G, X)


def scatter(
    code: Code,
    d_sums: Value,  # [N, G]
    ids: Value,  # [N]
    d_table: Value,  # [V, G]: is added to
    N: Value,
    first: Value,  # the first column to do
    columns: Value,  # how many columns to do
    G: Value,
) -> None:
    """Add each row of gradients to the row of the symbol that was read there: the look-up's backward pass."""
    with code.loop(N) as n:
        goal = code.at(d_table, code.load_index(ids, n) * G + first)
        _add(code, goal, code.at(d_sums, n * G + first), columns)


def sums(code: Code, x: Value, out: Value, N: Value, G: Value) -> None:
    """Add up the rows of x [N, G]."""
    clear(code, out, G)
    _add_rows(code, out, x, Terms(N, code.number(1), N), G, G)


def weights(
    code: Code,
    d_W: Value,  # [K, G], rows spaced: is added to
    x: Value,  # [N, K]
    d_sums: Value,  # [N, G]
    N: Value,
    K: Value,
    G: Value,
    first: Value,  # the first column to do
    columns: Value,  # how many columns to do
) -> None:
    """Add xᵀ·d_sums to d_W, a block of rows at a time that fits into the cache."""
    _add_weights(code, d_W, x, d_sums, Terms(N, code.number(1), N), K, G, first, columns)


def _add_weights(
    code: Code, d_W: Value, x: Value, d_sums: Value, terms: Terms, K: Value, G: Value, first: Value, columns: Value
) -> None:
    """Add in blocks of rows; the rows of several steps make one block."""
    most = rows_of_block(code.in_bf16)
    with code.loop((terms.rows + (most - 1)) // most) as n:
        row = n * most
        block = terms._replace(rows=(terms.rows - row).at_most_number(most))
        add_transposed_product(code, d_W, code.at(x, row * K), code.at(d_sums, row * G), block, K, G, first, columns)


def _add(code: Code, out: Value, x: Value, elements: Value) -> None:
    """Compute out += x."""
    with code.loop(elements // code.lanes) as v:
        address = code.at(out, v * code.lanes)
        code.store(code.load(address) + code.load(code.at(x, v * code.lanes)), address)


def _add_rows(code: Code, out: Value, x: Value, terms: Terms, N: Value, columns: Value) -> None:
    """Add each row of x [N] to out, in the first columns."""
    with code.loop(columns // code.lanes) as v:
        address = code.at(out, v * code.lanes)
        total = Variable(code, code.load(code.at(out, v * code.lanes)))
        with code.loop(terms.steps) as s, code.loop(terms.rows) as r:
            total.set(total.get() + code.load(code.at(x, (s * terms.apart + r) * N + v * code.lanes)))
        code.store(total.get(), address)


@cache
def forward_for(bits: int, cell: CellStep, looks_up: bool, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(forward, bits, "aaaaaaaaaannnnnn", in_bf16, cell=cell, looks_up=looks_up)


@cache
def backward_for(bits: int, cell: CellStep, looks_up: bool, sums_weights: bool, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(backward, bits, "a" * 18 + "n" * 8, in_bf16, cell=cell, looks_up=looks_up, sums_weights=sums_weights)


@cache
def scatter_for(bits: int) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(scatter, bits, "aaannnn")


@cache
def sums_for(bits: int) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(sums, bits, "aann")


@cache
def weights_for(bits: int, in_bf16: bool) -> Callable[..., None]:
    """The code, compiled when it is first used."""
    return make(weights, bits, "aaannnnn", in_bf16)
