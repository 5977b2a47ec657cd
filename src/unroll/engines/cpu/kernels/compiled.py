"""Recurrent layers on the CPU, their time loops compiled on the spot: see `builder.py` and `layer_code.py`.

A thread takes its rows of a layer through all time steps in one call: no step waits for another thread or for Python.
Everything pointwise is one pass over numbers that the product has just left in the cache. Each thread also adds up its
rows' part of the weights' gradients. If a thread has few rows, that is too much to add up: then threads divide the
columns of one large product after the loop.

A row's numbers depend on that row alone, so a run's numbers are the same alone and in a fleet.

Shapes: M runs, T time, B rows, N = T·B, I inputs, H hidden (in here padded to whole vectors), G columns of a record
(see `engines/cpu/cells`), V symbols, P threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.engines.cpu import builder, cells, parallel_calls, workers
from unroll.engines.cpu.buffer_pool import take
from unroll.engines.cpu.cells import CellStep
from unroll.engines.cpu.packing import arranged, arranged_back, grown, packed, padded, panel, start
from unroll.engines.cpu.partial_sums import PartialSums
from unroll.engines.cpu.products import room_for
from unroll.engines.cpu.transposed_products import BLOCK, terms_of
from unroll.model.cells import State
from unroll.model.network import Network, States

RANK = 3
ENOUGH_ROWS = 16  # rows of a thread for which separate sums of all weights' gradients pay


def supports(network: Network, device: torch.device) -> str | None:
    """Accept cells that have machine code, on the CPU."""
    if device.type != "cpu":
        return f"it is made for the CPU, and this device is {device.type}"
    if cells.of(network.cell) is None:
        return "it has no machine code for this cell"
    return None if builder.available() else builder.missing()


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """Take all layers over all time steps."""
    return run_last(network, ids_MTB, first, at_M, ids_MTB.shape[1])


def run_last(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor, K: int) -> tuple[Tensor, States]:
    """Do the same, but return h of the last K steps alone: the other steps then get no gradient from above."""
    at: list[State] = []
    x, top = ids_MTB, len(network.layers) - 1
    keep = torch.is_grad_enabled()
    cell = cells.of(network.cell)
    assert cell  # else this network is not supported
    for n, (layer, state) in enumerate(zip(network.layers, first, strict=True)):
        w_c = layer.extra.get("w_c")
        final_steps = K if n == top else ids_MTB.shape[1]
        settings = _Settings(cell, network.clip, network.precision == "bfloat16", keep, final_steps)
        x, *after = _Layer.apply(settings, at_M, x, layer.W_x, layer.W_h, layer.b, w_c, *state)
        at.append(tuple(after))
    return x, tuple(at)


class _Settings(NamedTuple):
    """The settings of a layer."""

    cell: CellStep
    clip: float
    in_bf16: bool  # products multiply bfloat16
    keep: bool  # keep what the backward pass needs
    final_steps: int  # how many final steps return h


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
        from unroll.engines.cpu.layer_code import forward_for

        cell, in_bf16 = settings.cell, settings.in_bf16
        M, T, B = x.shape[:3]
        unpadded_H, dtype = W_h.shape[1], W_h.dtype
        H = padded(unpadded_H, dtype)
        looks_up = not x.is_floating_point()
        W_x, b = (arranged(value, H, cell.INPUTS) for value in (W_x, b))
        W_h = arranged(grown(W_h, 1, H), H, cell.RECURRENT)
        w = W_h.new_zeros(M, cell.EXTRA, H) if w_c is None else grown(w_c, 2, H).contiguous()
        records = take((M, T, B, cell.groups * H), dtype)
        kept = take((M, T, B, cell.KEPT * H), dtype)
        states = [take((M, T + 1, B, H), dtype) for _ in first]
        for over_time, s in zip(states, first, strict=True):
            over_time[:, 0] = grown(s, 2, H)
        if looks_up:
            K, x, inputs, W_x_packed = 0, x.contiguous(), W_x + b.unsqueeze(1), x.new_empty(0)
        else:
            K = padded(x.shape[3], dtype)
            x, inputs, W_x_packed = (
                grown(x, 3, K).contiguous(),
                b.contiguous(),
                packed(grown(W_x, 1, K), in_bf16=in_bf16),
            )
        of_run = (records, *_pair(states), kept, packed(W_h, in_bf16=in_bf16), w, inputs, x, W_x_packed)
        step = forward_for(8 * dtype.itemsize, cell, looks_up, in_bf16)
        rows = _stretches(slice(0, B), 1)
        room_PM = take((len(rows), M, room_for(_most(rows), max(H, K), in_bf16)), dtype)
        calls = []
        for m in range(M):
            addresses = [start(x, m) for x in of_run]
            calls += [
                (*addresses, start(room, m), stretch.start, stretch.stop - stretch.start, T, B, H, K)
                for stretch, room in zip(rows, room_PM, strict=True)
            ]
        parallel_calls.do(step, calls)
        at = [_after(s[..., :unpadded_H], at_M.tolist(), settings.keep) for s in states]
        ctx.mark_non_differentiable(*at)
        ctx.set_materialize_grads(False)  # those get no gradients, and no zeros need be made for them
        if settings.keep:
            ctx.settings = settings, unpadded_H, w_c is not None
            ctx.held = records, kept, states, w
            ctx.save_for_backward(x, W_x, W_h)
        return states[0][:, T + 1 - settings.final_steps :, :, :unpadded_H], *at

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, *_at: None) -> tuple[Tensor | None, ...]:
        from unroll.engines.cpu.layer_code import backward_for

        x, W_x, W_h = ctx.saved_tensors
        (cell, clip, in_bf16, *_), unpadded_H, has_extra = ctx.settings
        records, kept, states, w = ctx.held
        ctx.held = ()  # the gradients overwrite the records
        M, T, B, G = records.shape
        H, dtype = G // cell.groups, records.dtype
        d_out = grown(d_out, 3, H).contiguous()
        d_first = [W_h.new_empty(M, B, H) for _ in states]
        looks_up = not x.is_floating_point()
        if looks_up:
            K = W_x.shape[1]
            W_x_packed = x.new_empty(0)
            d_x = x.new_empty(0)
        else:
            K = x.shape[3]
            W_x_packed = packed(grown(W_x, 1, K), True, in_bf16)
            d_x = take(tuple(x.shape), dtype)
        rows = _stretches(slice(0, B), 1)
        P = len(rows)
        sums_weights = B >= P * ENOUGH_ROWS
        # Each thread adds up its rows' part of the weights' gradients.
        sizes = (
            (cell.EXTRA, H),
            (H, G) if sums_weights else (0,),
            (K, G) if sums_weights else (0,),
            (0,) if looks_up else (G,),
        )
        sums = PartialSums(P, [(M, *size) for size in sizes], dtype)
        of_run = (records, *_pair(states), kept, d_out, *_pair(d_first), packed(W_h, True, in_bf16), w)
        step = backward_for(8 * dtype.itemsize, cell, looks_up, sums_weights, in_bf16)
        room_PM = take((P, M, room_for(_most(rows), G, in_bf16)), dtype)
        bound = W_h.new_tensor(clip)
        calls = []
        for m in range(M):
            addresses = [start(value, m) for value in of_run]
            inputs = [start(value, m) for value in (x, W_x_packed, d_x)]
            for stretch, room, of_thread in zip(rows, room_PM, sums.by_thread, strict=True):
                of_w, of_W, of_W_x, of_b = (start(d, m) for d in of_thread)
                n = stretch.stop - stretch.start
                call = (*addresses, of_w, of_W, *inputs, of_W_x, of_b, start(room, m), bound.data_ptr())
                steps = max(1, BLOCK // terms_of(n, in_bf16))  # steps of a block
                calls.append((*call, stretch.start, n, T, d_out.shape[1], B, H, K, steps))
        parallel_calls.do(step, calls)
        d_w, d_W_h, d_W_x, d_b = sums.totals()
        d_records_MNG = records.view(M, T * B, G)
        if not sums_weights:
            h_MNH = states[0][:, :T].flatten(1, 2)
            filled = slice(0, len(cell.INPUTS) * H)
            d_W_h = _weight_gradient(h_MNH, d_records_MNG, slice(cell.both.start * H, G), in_bf16)
            if looks_up:
                d_W_x = _scattered(x, K, d_records_MNG, filled)
            else:
                d_W_x = _weight_gradient(x.flatten(1, 2), d_records_MNG, filled, in_bf16)
        if looks_up:
            d_b = _sums(d_W_x)  # every token adds to one row of W_x, and to b
        I = W_x.shape[1]
        d_W_x, d_b = (arranged_back(d, unpadded_H, cell.INPUTS, cell.groups) for d in (d_W_x[:, :I], d_b))
        d_W_h = arranged_back(d_W_h[:, :unpadded_H], unpadded_H, cell.RECURRENT, cell.groups)
        d_w_c = d_w[..., :unpadded_H] if has_extra else None
        d_below = None if looks_up else d_x[..., :I]
        return (None,) * 2 + (d_below, d_W_x, d_W_h, d_b, d_w_c, *(d[..., :unpadded_H] for d in d_first))


def _pair(of_states: list[Tensor]) -> list[Tensor]:
    """One tensor for each of two states; for a cell with one state the second is empty."""
    return [*of_states, of_states[0].new_empty(0)][:2]


def _after(s_all: Tensor, steps: list[int], kept: bool) -> Tensor:
    """Each run's state after its number of steps: a view, if all states are kept and all numbers are the same."""
    if kept and len(set(steps)) == 1:
        return s_all[:, steps[0]]
    return torch.stack([s_all[m, n] for m, n in enumerate(steps)])


def _sums(x_MVG: Tensor) -> Tensor:
    """The sums over all rows."""
    from unroll.engines.cpu.layer_code import sums_for

    M, V, G = x_MVG.shape
    out = x_MVG.new_empty(M, G)
    parallel_calls.do(sums_for(8 * x_MVG.dtype.itemsize), [(start(x_MVG, m), start(out, m), V, G) for m in range(M)])
    return out


def _scattered(ids: Tensor, V: int, d_records_MNG: Tensor, filled: slice) -> Tensor:
    """The gradient of a W_x that is looked up, in the columns of a record."""
    from unroll.engines.cpu.layer_code import scatter_for

    M, N, G = d_records_MNG.shape
    d_W_x = d_records_MNG.new_zeros(M, V, G)
    scatter = scatter_for(8 * d_records_MNG.dtype.itemsize)

    runs = [[start(x, m) for x in (d_records_MNG, ids, d_W_x)] for m in range(M)]
    columns = _stretches(filled, panel(d_W_x.dtype))
    parallel_calls.do(
        scatter, [(*run, N, stretch.start, stretch.stop - stretch.start, G) for run in runs for stretch in columns]
    )
    return d_W_x


def _weight_gradient(x_MNK: Tensor, d_records_MNG: Tensor, filled: slice, in_bf16: bool) -> Tensor:
    """xᵀ·d_records of each run, in the columns of a record."""
    from unroll.engines.cpu.layer_code import weights_for

    M, N, G = d_records_MNG.shape
    K = x_MNK.shape[2]
    sums = PartialSums(1, [(M, K, G)], x_MNK.dtype)
    add = weights_for(8 * x_MNK.dtype.itemsize, in_bf16)
    d_W = sums.by_thread[0][0].zero_()

    runs = [[start(x, m) for x in (d_W, x_MNK, d_records_MNG)] for m in range(M)]
    columns = _stretches(filled, panel(x_MNK.dtype))
    parallel_calls.do(
        add, [(*run, N, K, G, stretch.start, stretch.stop - stretch.start) for run in runs for stretch in columns]
    )
    return sums.totals()[0]


def _stretches(indices: slice, multiple: int) -> list[slice]:
    """Divide indices into a stretch for each thread, in multiples."""
    begin = indices.start
    stretches = workers.divided((indices.stop - begin) // multiple, workers.count())
    return [slice(begin + s.start * multiple, begin + s.stop * multiple) for s in stretches if s.stop > s.start]


def _most(stretches: list[slice]) -> int:
    return max(int(stretch.stop - stretch.start) for stretch in stretches)
