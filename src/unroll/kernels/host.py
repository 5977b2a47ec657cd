"""The LSTM on the CPU: as few calls, and as few passes over memory, as torch allows.

A time step on a CPU is a small product and a little pointwise work, so what counts is the number of calls and where
their operands lie. Hence:

- Runs go one after the other, since one keeps the processor busy; so a run's numbers are the same alone and in a fleet.
- A step's product is a batch of products, one a thread with its part of the rows: threads that share one product wait
  for each other. It adds straight onto what the input brought.
- The output gate's columns stand first, o, i, f, c: then the three sigmoids are neighbours, and so are the three gates
  whose gradient is a multiple of c's.
- On the way back, everything that does not wait for the recurrence (the derivatives of the gates) is computed for a
  block of time steps at once, small enough to stay in the cache; a step then only multiplies.
- Gradients replace the gates in their buffer, and that buffer is kept for the next batch.

Shapes: M runs, T time, S steps of a block, B rows = P parts of R rows, I inputs, H hidden, G = 4·H gate columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.cells import State, lstm
from unroll.kernels import Network, States, state_at
from unroll.spare import Spare

BLOCK = 1 << 21  # bytes of factors in a block of time steps: about the second-level caches of two cores


def supports(network: Network, device: torch.device) -> str | None:
    """The LSTM with any peepholes, on the CPU."""
    if device.type != "cpu":
        return f"it is made for the CPU, and this device is {device.type}"
    if not isinstance(network.cell, lstm.Cell):
        return "it knows only the LSTM"
    return None


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps, one run after the other."""
    at: list[State] = []
    xs = _runs(ids_MTB)
    for layer, state in zip(network.layers, first, strict=True):
        w_c = _runs(layer.extra["w_c"]) if layer.extra else (None,) * len(xs)
        inputs = zip(xs, *map(_runs, (layer.W_x, layer.W_h, layer.b)), w_c, *map(_runs, state), strict=True)
        over_time = [_Layer.apply(network.cell.peepholes, network.clip, *own) for own in inputs]
        xs = tuple(h for h, _ in over_time)
        states = (tuple(s.detach().unsqueeze(0) for s in state) for state in over_time)
        at_each = [state_at(state, step) for state, step in zip(states, at_M.split(1), strict=True)]
        at.append(tuple(torch.cat(s) for s in zip(*at_each, strict=True)))
    return torch.stack(xs) if len(xs) > 1 else xs[0].unsqueeze(0), tuple(at)


_spare = Spare()


class _Layer(torch.autograd.Function):
    """One run's layer over time: ids or the h below, parameters, first state in; h and c after every step out."""

    @staticmethod
    def forward(
        ctx: Any,
        peepholes: str,
        clip: float,
        x: Tensor,
        W_x: Tensor,
        W_h: Tensor,
        b: Tensor,
        w_c: Tensor | None,
        h_first: Tensor,
        c_first: Tensor,
    ) -> tuple[Tensor, Tensor]:
        T, B = x.shape[:2]
        H = len(W_h)
        P = _parts(B)
        W_x, W_h, b = (w.roll(H, -1) for w in (W_x, W_h, b))
        w_oif = None if w_c is None else w_c.roll(1, 0)
        gates, tanh_c = (_spare.take((T, P, B // P, n * H), W_h.dtype) for n in (4, 1))
        _inputs(x, W_x, b, gates.view(T * B, 4 * H))
        # Slot 0 is the first state, so that "before" and "after" each step are two views of one buffer.
        h_all, c_all = W_h.new_empty(T + 1, P, B // P, H), W_h.new_empty(T + 1, P, B // P, H)
        h_all[0], c_all[0] = h_first.view_as(h_all[0]), c_first.view_as(c_all[0])

        apart = gates.unflatten(-1, (4, H))
        o, i, f, g = (gate.unbind(0) for gate in apart.unbind(3))
        # NumPy's tanh: torch's hands every row of a strided view to all threads, at ten times the cost.
        g_array, c_array, t_array = (list(s.numpy()) for s in (apart[:, :, :, 3], c_all, tanh_c))
        sums, t, h, c, c_wide = (s.unbind(0) for s in (gates, tanh_c, h_all, c_all, c_all.unsqueeze(3)))
        # Lasagne's output gate sees c after the step, so it comes later than the other two.
        early = slice(1, 3) if peepholes == "lasagne" else slice(0, 3)
        seeing, sigmoids = apart[:, :, :, early].unbind(0), gates[..., early.start * H : 3 * H].unbind(0)
        W = W_h.expand(P, H, 4 * H)
        w_o, w_early = (None, None) if w_oif is None else (w_oif[0], w_oif[early])
        for n in range(T):
            sums[n].baddbmm_(h[n], W)
            if w_early is not None:
                seeing[n].addcmul_(w_early, c_wide[n])
            sigmoids[n].sigmoid_()
            np.tanh(g_array[n], out=g_array[n])
            torch.mul(f[n], c[n], out=c[n + 1]).addcmul_(i[n], g[n])
            if w_o is not None and early.start:
                o[n].addcmul_(w_o, c[n + 1]).sigmoid_()
            np.tanh(c_array[n + 1], out=t_array[n])
            torch.mul(o[n], t[n], out=h[n + 1])
        ctx.peepholes, ctx.clip = peepholes, clip
        ctx.held = gates, tanh_c, h_all, c_all, W_x, W_h, w_oif
        ctx.save_for_backward(x)
        h_after, c_after = h_all[1:].view(T, B, H), c_all[1:].view(T, B, H)
        ctx.mark_non_differentiable(c_after)
        return h_after, c_after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out: Tensor, _d_c: Tensor) -> tuple[Tensor | None, ...]:
        peepholes, clip = ctx.peepholes, ctx.clip
        (x,) = ctx.saved_tensors
        gates, tanh_c, h_all, c_all, W_x, W_h, w_oif = ctx.held
        ctx.held = ()  # the gradients of the sums take the gates' place
        T, P, R, G = gates.shape
        B, H = P * R, G // 4
        apart = gates.unflatten(-1, (4, H))
        d_sums, d_gates = gates.unbind(0), apart.unbind(0)
        d_w_oif = None if w_oif is None else torch.zeros_like(w_oif)
        W_back = W_h.t().contiguous().expand(P, G, H)
        # What arrives from above at each step's h, and at the state before the first step: nothing.
        arriving = (torch.zeros_like(h_all[0]), *d_out.reshape(T, P, R, H).unbind(0))
        d_h, d_c, d_before = arriving[-1], torch.zeros_like(h_all[0]), torch.empty_like(h_all[0])

        S = min(T, max(1, BLOCK // (7 * B * H * W_h.element_size())))
        buffer_7SPRH = W_h.new_empty(7, S, P, R, H)
        for end in range(T, 0, -S):
            start = max(0, end - S)
            before, after = slice(start, end), slice(start + 1, end + 1)
            factors = buffer_7SPRH[:, : end - start]
            _factors(factors, apart[before], h_all[after], c_all[before], tanh_c[before], w_oif, peepholes)
            d_o, d_earlier, by_h, by_h_early = (factors[n].unbind(0) for n in (0, 4, 5, 6))
            by_c, unclipped = factors[1:5].unbind(1), factors[:4].movedim(0, 3).unbind(0)
            for n in reversed(range(end - start)):
                d_c.addcmul_(d_h, by_h[n])
                d_o[n].mul_(d_h)
                by_c[n].mul_(d_c)
                d_c = d_earlier[n]
                if peepholes == "paper":
                    d_c.addcmul_(d_h, by_h_early[n])
                torch.clamp(unclipped[n], -clip, clip, out=d_gates[start + n])
                d_h = torch.baddbmm(arriving[start + n], d_sums[start + n], W_back, out=d_before)
            d_c = d_c.clone()  # the next block overwrites the factors
            if d_w_oif is not None:
                # Peepholes see the gradient before the clip.
                early = slice(1, 3) if peepholes == "lasagne" else slice(0, 3)
                factors[early].mul_(c_all[before])
                if early.start:
                    factors[0].mul_(c_all[after])
                d_w_oif += factors[:3].sum((1, 2, 3))

        d_sums_NG = gates.view(T * B, G)
        d_W_h = h_all[:T].view(T * B, H).t() @ d_sums_NG
        d_x, d_W_x, d_b = _input_gradients(x, W_x, d_sums_NG)
        _spare.give(gates, tanh_c)
        d_W_x, d_W_h, d_b = (d.roll(-H, -1) for d in (d_W_x, d_W_h, d_b))
        d_w_c = None if d_w_oif is None else d_w_oif.roll(-1, 0)
        return None, None, d_x, d_W_x, d_W_h, d_b, d_w_c, d_h.view(B, H), d_c.view(B, H)


def _runs(x_M: Tensor) -> tuple[Tensor, ...]:
    """Each run's own. The gradient of one run alone passes through as it is, without a copy."""
    return x_M.unbind(0) if len(x_M) > 1 else (x_M.squeeze(0),)


def _parts(rows: int) -> int:
    """How many parts the rows fall into: one a thread, where they divide evenly."""
    threads = torch.get_num_threads()
    return threads if rows % threads == 0 else 1


def _inputs(x: Tensor, W_x: Tensor, b: Tensor, out_NG: Tensor) -> None:
    """x·W_x + b, where x are ids in the first layer and the h below in the others."""
    if x.is_floating_point():
        torch.addmm(b, x.reshape(len(out_NG), -1), W_x, out=out_NG)
    else:
        # The bias goes into the table of rows, which is far smaller than the rows looked up.
        torch.index_select(W_x + b, 0, x.flatten(), out=out_NG)


def _input_gradients(x: Tensor, W_x: Tensor, d_sums_NG: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of the h below, W_x and b."""
    if x.is_floating_point():
        d_W_x = x.reshape(len(d_sums_NG), -1).t() @ d_sums_NG
        return (d_sums_NG @ W_x.t()).view(x.shape), d_W_x, d_sums_NG.sum(0)
    d_W_x = torch.ops.aten.embedding_dense_backward(d_sums_NG, x.flatten(), len(W_x), -1, False)
    return None, d_W_x, d_W_x.sum(0)  # every token adds to one row of W_x, and to b


def _factors(
    out_7SPRH: Tensor,
    gates_SPR4H: Tensor,
    h: Tensor,
    c: Tensor,
    t: Tensor,
    w_oif: Tensor | None,
    peepholes: str,
) -> None:
    """What a step back multiplies gradients with; h and t = tanh(c) after each step, c before it.

    The gradients of the sums of i, f and c, and of the c before, are multiples of d_c; that of o's sum, and what h adds
    to d_c and to the d_c before, are multiples of d_h.
    """
    o, i, f, g = gates_SPR4H.unbind(3)
    of_o, of_i, of_f, of_g, of_earlier, by_h, by_h_early = out_7SPRH.unbind(0)
    torch.addcmul(h, h, o, value=-1, out=of_o)  # t·o·(1 − o), since h = o·t
    torch.mul(i, g, out=of_i)
    torch.addcmul(i, of_i, g, value=-1, out=of_g)  # i·(1 − g²)
    of_i.addcmul_(of_i, i, value=-1)  # g·i·(1 − i)
    torch.mul(f, c, out=of_f)
    of_f.addcmul_(of_f, f, value=-1)  # c·f·(1 − f)
    torch.addcmul(o, h, t, value=-1, out=by_h)  # o·(1 − t²)
    if w_oif is None:
        of_earlier.copy_(f)
        return
    w_o, w_i, w_f = w_oif
    torch.addcmul(f, of_i, w_i, out=of_earlier).addcmul_(of_f, w_f)
    if peepholes == "paper":
        torch.mul(of_o, w_o, out=by_h_early)
    else:
        by_h.addcmul_(of_o, w_o)
