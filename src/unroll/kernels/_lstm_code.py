"""The LSTM's time loops, as machine code: see `machine_code.py`.

Gates stand as in the parameters: i, f, g, o; so do the peepholes of i, f and o. Everything is padded to whole panels
with weights of 0; a padded unit stays 0.

Shapes: M runs, T time, B rows, H hidden (padded), G = 4·H gate columns.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from torch import Tensor

from unroll.arithmetic import quotients, sigmoid, tanh
from unroll.machine_code import Code, Value, Variable
from unroll.making_code import make
from unroll.panels import grown
from unroll.products import Begin, Terms, add_transposed_product, clear, left_side, product, rows_of_block, spaced

GATES = (3, 0, 1, 2)  # the places of o, i, f and g
PEEPHOLES = (2, 0, 1)  # the places of o, i and f


def forward(
    code: Code,
    gates: Value,  # [M, T, B, G]: of each step
    h: Value,  # [M, T + 1, B, H]: the first state is there
    c: Value,  # the same
    t: Value,  # [M, T, B, H]: tanh of c after each step
    W: Value,  # [M, H, G], packed
    w: Value,  # [M, 3, H]: the peepholes
    brought: Value,  # [M, V, G]: what each symbol brings; of upper layers [M, G]: b
    x: Value,  # [M, T, B]: the symbols; of upper layers [M, T, B, K]
    W_x: Value,  # of upper layers [M, K, G], packed
    room: Value,  # [rows, H or K]: see `left_side`
    first: Value,  # the rows to do, of one run
    rows: Value,
    T: Value,
    B: Value,
    H: Value,
    K: Value,
    *,
    peepholes: str,
    looks: bool,
) -> None:
    """Some rows of a layer over all time steps; the first layer `looks` its inputs' share up."""
    G, wide = H * 4, code.wide()
    with code.loop(T) as n:
        before = n * B + first
        sums = code.at(gates, before * G)
        begin = Begin(brought, G, code.at_index(x, before)) if looks else Begin(brought, code.number(0))
        if not looks:
            inputs = left_side(code, code.at(x, before * K), rows, K, room)
            product(code, sums, inputs, W_x, rows, K, G, begin)
            begin = Begin(sums, G)
        product(code, sums, left_side(code, code.at(h, before * H), rows, H, room), W, rows, H, G, begin)
        with code.loop(rows) as r, code.loop(H // wide.lanes) as v:
            j, row = v * wide.lanes, before + r
            places = [code.at(sums, r * G + H * gate + j) for gate in GATES]
            _step(
                wide,
                places,
                code.at(h, (row + B) * H + j),
                code.at(c, (row + B) * H + j),
                code.at(t, row * H + j),
                wide.load(code.at(c, row * H + j)),
                [code.at(w, H * gate + j) for gate in PEEPHOLES],
                peepholes,
            )


def _step(
    code: Code, places: list[Value], h: Value, c: Value, t: Value, c_before: Value, w: list[Value], peepholes: str
) -> None:
    """A vector of units."""
    found = _cell(code, [code.load(place) for place in places], c_before, w, peepholes)
    for value, place in zip(found, (*places, c, t, h), strict=True):
        code.store(value, place)


def _cell(code: Code, sums: list[Value], c_before: Value, w: list[Value], peepholes: str) -> tuple[Value, ...]:
    """Of a vector of units: the gates o, i, f, g; c, its tanh, and h."""
    a_o, a_i, a_f, a_g = sums
    if peepholes != "off":
        a_i, a_f = code.fma(code.load(w[1]), c_before, a_i), code.fma(code.load(w[2]), c_before, a_f)
    i, f, g = quotients(code, sigmoid(code, a_i), sigmoid(code, a_f), tanh(code, a_g))
    c_after = code.fma(i, g, f * c_before)
    if peepholes != "off":
        a_o = code.fma(code.load(w[0]), c_before if peepholes == "paper" else c_after, a_o)
    o, t_after = quotients(code, sigmoid(code, a_o), tanh(code, c_after))
    return o, i, f, g, c_after, t_after, o * t_after


def pointwise(
    code: Code,
    o: Value,  # the gates' sums, [rows, H] each
    i: Value,
    f: Value,
    g: Value,
    h: Value,  # [rows, H]: the next state takes its place
    c: Value,  # the same
    w: Value,  # [3, H]: of o, i and f
    rows: Value,
    H: Value,
    *,
    peepholes: str,
) -> None:
    """What follows a step's products."""
    with code.loop(rows) as r, code.loop(H // code.lanes) as v:
        j = v * code.lanes
        place = r * H + j
        sums = [code.load(code.at(gate, place)) for gate in (o, i, f, g)]
        weights = [code.at(w, H * gate + j) for gate in range(3)]
        *_, c_after, _t, h_after = _cell(code, sums, code.load(code.at(c, place)), weights, peepholes)
        code.store(c_after, code.at(c, place))
        code.store(h_after, code.at(h, place))


def backward(
    code: Code,
    gates: Value,  # [M, T, B, G]: the gradients of their sums take their place
    c: Value,  # [M, T + 1, B, H]
    t: Value,  # [M, T, B, H]
    d_out: Value,  # [M, S, B, H]: what arrives from above at the h of the last S steps
    d_h: Value,  # [M, B, H]: the gradient of the first h, after
    d_c: Value,  # the same
    W: Value,  # [M, G, H]: W_h transposed, packed
    w: Value,  # [M, 3, H]
    d_w: Value,  # [3, H], rows spaced, as those of the other gradients of weights
    h: Value,  # [M, T + 1, B, H]
    d_W: Value,  # [H, G]
    x: Value,  # [M, T, B]: the symbols; of upper layers [M, T, B, K]
    W_x: Value,  # of upper layers [M, G, K]: transposed, packed
    d_x: Value,  # as x
    d_W_x: Value,  # [K, G]
    d_b: Value,  # of upper layers [G]
    room: Value,  # [rows, G]
    clip: Value,  # where the bound of a gradient stands
    first: Value,
    rows: Value,
    T: Value,
    S: Value,
    B: Value,
    H: Value,
    K: Value,  # of the layer that looks: how many symbols there are
    together: Value,  # steps of a block
    *,
    peepholes: str,
    looks: bool,
    weighs: bool,
) -> None:
    """Some rows of a layer back through all time steps; where it `weighs`, with their share of the weights' gradients.

    Those are added up block by block, while the block's rows are in the cache.
    """
    G, wide = H * 4, code.wide()
    bound = wide.load_spread(clip)
    arriving = [(code.at(d, first * H), rows * H) for d in (d_h, d_c)]
    H_apart, G_apart = (spaced(n, code.lanes) for n in (H, G))
    added = [(d_w, H_apart * 3)] + [(d_W, H * G_apart), (d_W_x, K * G_apart)] * weighs + [(d_b, G)] * (not looks)
    for sums, elements in arriving + added:
        clear(code, sums, elements)
    with code.loop((T + together - 1) // together, backwards=True) as block:
        begin = block * together
        steps = (T - begin).at_most_number(together)
        with code.loop(steps, backwards=True) as n:
            before = (begin + n) * B + first
            sums, d_h_rows = code.at(gates, before * G), code.at(d_h, first * H)
            with code.loop((begin + n + S) // T):  # once or not at all
                _add(code, d_h_rows, code.at(d_out, (before - (T - S) * B) * H), rows * H)
            with code.loop(rows) as r, code.loop(H // wide.lanes) as v:
                j, row = v * wide.lanes, before + r
                seen = code.at(c, (row + B) * H + j) if peepholes == "lasagne" else None
                _back(
                    wide,
                    [code.at(sums, r * G + H * gate + j) for gate in GATES],
                    wide.load(code.at(d_h_rows, r * H + j)),
                    code.at(d_c, (first + r) * H + j),
                    wide.load(code.at(t, row * H + j)),
                    wide.load(code.at(c, row * H + j)),
                    seen,
                    [code.at(w, H * gate + j) for gate in PEEPHOLES],
                    [code.at(d_w, H_apart * gate + j) for gate in PEEPHOLES],
                    bound,
                    peepholes,
                )
            d_left = left_side(code, sums, rows, G, room)
            product(code, d_h_rows, d_left, W, rows, G, H)
            if not looks:
                product(code, code.at(d_x, before * K), d_left, W_x, rows, G, K)
        row, terms = begin * B + first, Terms(rows, steps, B)
        d_sums = code.at(gates, row * G)
        if weighs:
            _add_weights(code, d_W, code.at(h, row * H), d_sums, terms, H, G, code.number(0), G)
        if weighs and looks:
            with code.loop(steps) as s, code.loop(rows) as r:
                symbol = code.load_index(x, row + s * B + r)
                _add(code, code.at(d_W_x, symbol * G_apart), code.at(d_sums, (s * B + r) * G), G)
        elif weighs:
            _add_weights(code, d_W_x, code.at(x, row * K), d_sums, terms, K, G, code.number(0), G)
        if not looks:
            _add_rows(code, d_b, d_sums, terms, G)


def _back(
    code: Code,
    places: list[Value],
    d_h: Value,
    d_c_place: Value,
    t: Value,
    c_before: Value,
    c_after: Value | None,  # where it is needed
    w: list[Value],
    d_w: list[Value],
    bound: Value,
    peepholes: str,
) -> None:
    """The chain rule through one step, for a vector of units; peepholes see gradients before the clip."""
    one = code.constant(1.0)
    o, i, f, g = (code.load(place) for place in places)
    d_o = d_h * t * (o * (one - o))
    d_c = code.fma(d_h * o, one - t * t, code.load(d_c_place))
    if peepholes == "lasagne":
        d_c = code.fma(d_o, code.load(w[0]), d_c)
    d_i, d_f, d_g = d_c * g * (i * (one - i)), d_c * c_before * (f * (one - f)), d_c * i * (one - g * g)
    d_c = d_c * f
    if peepholes != "off":
        d_c = code.fma(d_f, code.load(w[2]), code.fma(d_i, code.load(w[1]), d_c))
        if peepholes == "paper":
            d_c = code.fma(d_o, code.load(w[0]), d_c)
        seen = c_before if c_after is None else code.load(c_after)
        for place, d, c in zip(d_w, (d_o, d_i, d_f), (seen, c_before, c_before), strict=True):
            code.store(code.fma(d, c, code.load(place)), place)
    code.store(d_c, d_c_place)
    for place, d in zip(places, (d_o, d_i, d_f, d_g), strict=True):
        code.store(d.at_most(bound).at_least(code.constant(0.0) - bound), place)


def scatter(
    code: Code,
    d_sums: Value,  # [N, G]
    ids: Value,  # [N]
    d_table: Value,  # [V, G]: is added to
    N: Value,
    first: Value,  # the columns to do
    columns: Value,
    G: Value,
) -> None:
    """Each row of gradients to the symbol that was read there: the look-up's way back."""
    with code.loop(N) as n:
        goal = code.at(d_table, code.load_index(ids, n) * G + first)
        _add(code, goal, code.at(d_sums, n * G + first), columns)


def sums(code: Code, x: Value, out: Value, N: Value, G: Value) -> None:
    """The rows of x [N, G], added up."""
    clear(code, out, G)
    _add_rows(code, out, x, Terms(N, code.number(1), N), G)


def weights(
    code: Code,
    d_W: Value,  # [K, G], rows spaced: is added to
    x: Value,  # [N, K]
    d_sums: Value,  # [N, G]
    N: Value,
    K: Value,
    G: Value,
    first: Value,  # the columns to do
    columns: Value,
) -> None:
    """xᵀ·d_sums, a block of rows at a time: one that fits into the cache."""
    _add_weights(code, d_W, x, d_sums, Terms(N, code.number(1), N), K, G, first, columns)


def _add_weights(
    code: Code, d_W: Value, x: Value, d_sums: Value, terms: Terms, K: Value, G: Value, first: Value, columns: Value
) -> None:
    """In blocks of rows; where there are several steps, their rows are one block together."""
    most = rows_of_block(code.narrow)
    with code.loop((terms.rows + (most - 1)) // most) as n:
        row = n * most
        own = terms._replace(rows=(terms.rows - row).at_most_number(most))
        add_transposed_product(code, d_W, code.at(x, row * K), code.at(d_sums, row * G), own, K, G, first, columns)


def _add(code: Code, out: Value, x: Value, elements: Value) -> None:
    """out += x."""
    with code.loop(elements // code.lanes) as v:
        place = code.at(out, v * code.lanes)
        code.store(code.load(place) + code.load(code.at(x, v * code.lanes)), place)


def _add_rows(code: Code, out: Value, x: Value, terms: Terms, N: Value) -> None:
    """out[N] += each of the rows."""
    with code.loop(N // code.lanes) as v:
        place, total = code.at(out, v * code.lanes), Variable(code, code.load(code.at(out, v * code.lanes)))
        with code.loop(terms.steps) as s, code.loop(terms.rows) as r:
            total.set(total.get() + code.load(code.at(x, (s * terms.apart + r) * N + v * code.lanes)))
        code.store(total.get(), place)


def columns(w: Tensor, H: int) -> Tensor:
    """Each gate's columns padded to H."""
    if w.shape[-1] == 4 * H:
        return w
    return grown(w.unflatten(-1, (4, -1)), w.dim(), H).flatten(-2)


@cache
def forward_for(bits: int, peepholes: str, looks: bool, narrow: bool) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(forward, bits, "aaaaaaaaaannnnnn", narrow, peepholes=peepholes, looks=looks)


@cache
def pointwise_for(bits: int, peepholes: str) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(pointwise, bits, "aaaaaaann", peepholes=peepholes)


@cache
def backward_for(bits: int, peepholes: str, looks: bool, weighs: bool, narrow: bool) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(backward, bits, "aaaaaaaaaaaaaaaaaannnnnnnn", narrow, peepholes=peepholes, looks=looks, weighs=weighs)


@cache
def scatter_for(bits: int) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(scatter, bits, "aaannnn")


@cache
def sums_for(bits: int) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(sums, bits, "aann")


@cache
def weights_for(bits: int, narrow: bool) -> Callable[..., None]:
    """The code, made at its first use."""
    return make(weights, bits, "aaannnnn", narrow)
