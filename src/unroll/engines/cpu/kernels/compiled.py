"""Recurrent layers on the CPU, their time loops compiled on the spot: see `builder.py` and `time_code.py`.

A thread takes its rows of a layer through all time steps in one call: no step waits for another thread or for Python,
and everything pointwise is one pass over numbers that the product has just left in the cache; so are the gradients of
the weights, of which each thread adds up a share. Where a thread has few rows that would be too much to add up: then
threads divide the columns of one large product, after the loop.

A row's numbers depend on that row alone, so a run's are the same alone and in a fleet.

Shapes: M runs, T time, B rows, N = T·B, I inputs, H hidden (in here padded to whole vectors), G columns of a record
(see `cell_code`), V symbols, P parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import builder, cells, parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.cells import CellStep
from unroll.engines.cpu.packing import grown, packed, padded, panel, start
from unroll.engines.cpu.partial_sums import Shares
from unroll.engines.cpu.products import BLOCK, room_for, terms_of
from unroll.model.cells import State
from unroll.model.network import Network, States

RANK = 3
OWN = 16  # rows of a part that are worth a gradient of all recurrent weights of its own


def supports(network: Network, device: torch.device) -> str | None:
    """Cells that have machine code, on the CPU."""
    if device.type != "cpu":
        return f"it is made for the CPU, and this device is {device.type}"
    if cells.of(network.cell) is None:
        return "it has no machine code for this cell"
    return None if builder.available() else builder.missing()


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps."""
    return run_last(network, ids_MTB, first, at_M, ids_MTB.shape[1])


def run_last(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int) -> tuple[Tensor, States]:
    """The same, but of the top layer's h only those of the last K steps, so that nothing arrives at the others."""
    at: list[State] = []
    x, keep, top, cell = ids_MTB, torch.is_grad_enabled(), len(network.layers) - 1, cells.of(network.cell)
    assert cell  # or this network is not supported
    for n, (layer, state) in enumerate(zip(network.layers, first, strict=True)):
        w_c, wanted = layer.extra.get("w_c"), K if n == top else ids_MTB.shape[1]
        settings = _Settings(cell, network.clip, network.precision == "bfloat16", keep, wanted)
        x, *after = _Layer.apply(settings, at_M, x, layer.W_x, layer.W_h, layer.b, w_c, *state)
        at.append(tuple(after))
    return x, tuple(at)


class _Settings(NamedTuple):
    """How a layer computes."""

    cell: CellStep
    clip: float
    narrow: bool  # products are of bfloat16
    keep: bool  # what the way back needs
    wanted: int  # of how many steps, the last ones, h is


class _Layer(torch.autograd.Function):
    """One layer over time: ids or the h below, parameters, first state in; the last h, and the state after at_M."""

    @staticmethod
    def forward(
        ctx: Any,
        settings: _Settings,
        at_M: Tensor,
        x: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        b: Tensor,
        w_c: Tensor | None,
        *first: Tensor,
    ) -> tuple[Tensor, ...]:
        from unroll.engines.cpu.time_code import arranged, forward_for

        cell, narrow = settings.cell, settings.narrow
        M, T, B = x.shape[:3]
        own_H, dtype = W_h.shape[1], W_h.dtype
        H = padded(own_H, dtype)
        looks = not x.is_floating_point()
        W_x, b = (arranged(value, H, cell.INPUTS) for value in (W_x, b))
        W_h = arranged(grown(W_h, 1, H), H, cell.RECURRENT)
        w = W_h.new_zeros(M, cell.EXTRA, H) if w_c is None else grown(w_c, 2, H).contiguous()
        records, kept = take((M, T, B, cell.groups * H), dtype), take((M, T, B, cell.KEPT * H), dtype)
        states = [take((M, T + 1, B, H), dtype) for _ in first]
        for over_time, s in zip(states, first, strict=True):
            over_time[:, 0] = grown(s, 2, H)
        if looks:
            K, x, brought, below = 0, x.contiguous(), W_x + b.unsqueeze(1), x.new_empty(0)
        else:
            K = padded(x.shape[3], dtype)
            x, brought, below = grown(x, 3, K).contiguous(), b.contiguous(), packed(grown(W_x, 1, K), narrow=narrow)
        of_run = (records, *_pair(states), kept, packed(W_h, narrow=narrow), w, brought, x, below)
        step = forward_for(8 * dtype.itemsize, cell, looks, narrow)
        rows = _stretches(slice(0, B), 1)
        room_PM = take((len(rows), M, room_for(_most(rows), max(H, K), narrow)), dtype)
        calls = []
        for m in range(M):
            own = [start(x, m) for x in of_run]
            calls += [
                (*own, start(room, m), part.start, part.stop - part.start, T, B, H, K)
                for part, room in zip(rows, room_PM, strict=True)
            ]
        parallel_calls.do(step, calls)
        at = [_after(s[..., :own_H], at_M.tolist(), settings.keep) for s in states]
        ctx.mark_non_differentiable(*at)
        ctx.set_materialize_grads(False)  # none arrive at those, and no zeros need be made for them
        if settings.keep:
            ctx.settings = settings, own_H, w_c is not None
            ctx.held = records, kept, states, w
            ctx.save_for_backward(x, W_x, W_h)
        return states[0][:, T + 1 - settings.wanted :, :, :own_H], *at

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, *_at: None) -> tuple[Tensor | None, ...]:
        from unroll.engines.cpu.time_code import arranged_back, backward_for

        x, W_x, W_h = ctx.saved_tensors
        (cell, clip, narrow, *_), own_H, has_extra = ctx.settings
        records, kept, states, w = ctx.held
        ctx.held = ()  # gradients take the records' place
        M, T, B, G = records.shape
        H, dtype = G // cell.groups, records.dtype
        d_out = grown(d_out, 3, H).contiguous()
        d_first = [W_h.new_empty(M, B, H) for _ in states]
        looks = not x.is_floating_point()
        if looks:
            K, below, d_x = W_x.shape[1], x.new_empty(0), x.new_empty(0)
        else:
            K = x.shape[3]
            below, d_x = packed(grown(W_x, 1, K), True, narrow), take(tuple(x.shape), dtype)
        rows = _stretches(slice(0, B), 1)
        P = len(rows)
        weighs = B >= P * OWN
        # Each part adds up its own share of the weights' gradients.
        sizes = ((cell.EXTRA, H), (H, G) if weighs else (0,), (K, G) if weighs else (0,), (0,) if looks else (G,))
        shares = Shares(P, [(M, *size) for size in sizes], dtype)
        of_run = (records, *_pair(states), kept, d_out, *_pair(d_first), packed(W_h, True, narrow), w)
        step = backward_for(8 * dtype.itemsize, cell, looks, weighs, narrow)
        room_PM = take((P, M, room_for(_most(rows), G, narrow)), dtype)
        bound = W_h.new_tensor(clip)
        calls = []
        for m in range(M):
            own, inputs = ([start(x, m) for x in some] for some in (of_run, (x, below, d_x)))
            for part, room, of_part in zip(rows, room_PM, shares.of, strict=True):
                of_w, of_W, of_W_x, of_b = (start(d, m) for d in of_part)
                n = part.stop - part.start
                call = (*own, of_w, of_W, *inputs, of_W_x, of_b, start(room, m), bound.data_ptr())
                steps = max(1, BLOCK // terms_of(n, narrow))  # of a block
                calls.append((*call, part.start, n, T, d_out.shape[1], B, H, K, steps))
        parallel_calls.do(step, calls)
        d_w, d_W_h, d_W_x, d_b = shares.totals()
        d_records_MNG = records.view(M, T * B, G)
        if not weighs:
            h_MNH, filled = states[0][:, :T].flatten(1, 2), slice(0, len(cell.INPUTS) * H)
            d_W_h = _weight_gradient(h_MNH, d_records_MNG, slice(cell.both.start * H, G), narrow)
            if looks:
                d_W_x = _scattered(x, K, d_records_MNG, filled)
            else:
                d_W_x = _weight_gradient(x.flatten(1, 2), d_records_MNG, filled, narrow)
        if looks:
            d_b = _sums(d_W_x)  # every token adds to one row of W_x, and to b
        I = W_x.shape[1]
        d_W_x, d_b = (arranged_back(d, own_H, cell.INPUTS, cell.groups) for d in (d_W_x[:, :I], d_b))
        d_W_h = arranged_back(d_W_h[:, :own_H], own_H, cell.RECURRENT, cell.groups)
        d_w_c = d_w[..., :own_H] if has_extra else None
        d_x_own = None if looks else d_x[..., :I]
        return (None,) * 2 + (d_x_own, d_W_x, d_W_h, d_b, d_w_c, *(d[..., :own_H] for d in d_first))


def _pair(of_states: list[Tensor]) -> list[Tensor]:
    """One for each of two states; of a cell with one state the second is nothing."""
    return [*of_states, of_states[0].new_empty(0)][:2]


def _after(s_all: Tensor, steps: list[int], kept: bool) -> Tensor:
    """The state of each run after so many steps; where all states are kept anyway, it may be one of them."""
    if kept and len(set(steps)) == 1:
        return s_all[:, steps[0]]
    return torch.stack([s_all[m, n] for m, n in enumerate(steps)])


def _sums(x_MVG: Tensor) -> Tensor:
    """Over all rows."""
    from unroll.engines.cpu.time_code import sums_for

    M, V, G = x_MVG.shape
    out = x_MVG.new_empty(M, G)
    parallel_calls.do(sums_for(8 * x_MVG.dtype.itemsize), [(start(x_MVG, m), start(out, m), V, G) for m in range(M)])
    return out


def _scattered(ids: Tensor, V: int, d_records_MNG: Tensor, filled: slice) -> Tensor:
    """The gradient of a W_x that is looked up, in columns of a record."""
    from unroll.engines.cpu.time_code import scatter_for

    M, N, G = d_records_MNG.shape
    d_W_x, scatter = d_records_MNG.new_zeros(M, V, G), scatter_for(8 * d_records_MNG.dtype.itemsize)

    runs = [[start(x, m) for x in (d_records_MNG, ids, d_W_x)] for m in range(M)]
    columns = _stretches(filled, panel(d_W_x.dtype))
    parallel_calls.do(scatter, [(*run, N, own.start, own.stop - own.start, G) for run in runs for own in columns])
    return d_W_x


def _weight_gradient(x_MNK: Tensor, d_records_MNG: Tensor, filled: slice, narrow: bool) -> Tensor:
    """xᵀ·d_records of each run, in columns of a record."""
    from unroll.engines.cpu.time_code import weights_for

    M, N, G = d_records_MNG.shape
    K = x_MNK.shape[2]
    whole, add = Shares(1, [(M, K, G)], x_MNK.dtype), weights_for(8 * x_MNK.dtype.itemsize, narrow)
    d_W = whole.of[0][0].zero_()

    runs = [[start(x, m) for x in (d_W, x_MNK, d_records_MNG)] for m in range(M)]
    columns = _stretches(filled, panel(x_MNK.dtype))
    parallel_calls.do(add, [(*run, N, K, G, own.start, own.stop - own.start) for run in runs for own in columns])
    return whole.totals()[0]


def _stretches(of: slice, whole: int) -> list[slice]:
    """In multiples of `whole`, a stretch a thread."""
    found = workers.divided((of.stop - of.start) // whole, workers.count())
    return [slice(of.start + own.start * whole, of.start + own.stop * whole) for own in found if own.stop > own.start]


def _most(stretches: list[slice]) -> int:
    return max(int(own.stop - own.start) for own in stretches)
