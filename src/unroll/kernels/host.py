"""The LSTM on the CPU: as few passes over memory, and as few calls, as torch allows.

A time step on a CPU is a small product and a little pointwise work, so what counts is the number of calls and where
their operands lie. Hence:

- Products add straight onto what the input brought, and write into buffers that are there before the loop.
- The output gate's columns stand first, o, i, f, c: then the three sigmoids are neighbours, and so are the three gates
  whose gradient is a multiple of c's.
- On the way back, everything that does not wait for the recurrence (the derivatives of the gates) is computed for a
  block of time steps at once, small enough to stay in the cache; a step then only multiplies.
- Gradients replace the gates in their buffer, and that buffer is kept for the next batch.

Shapes: M runs, T time, S steps of a block, B rows, I inputs, H hidden, G = 4·H gate columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from unroll.cells import State, lstm
from unroll.kernels import Network, States, state_at

RANK = 2
BLOCK = 1 << 21  # bytes of factors in a block of time steps: about the second-level caches of two cores


def supports(network: Network, device: torch.device) -> str | None:
    """The LSTM with any peepholes, on the CPU."""
    if device.type != "cpu":
        return f"it is made for the CPU, and this device is {device.type}"
    if not isinstance(network.cell, lstm.Cell):
        return "it knows only the LSTM"
    return None


def run(network: Network, ids_MTB: Tensor, first: States, at_M: Tensor) -> tuple[Tensor, States]:
    """All layers over all time steps."""
    at: list[State] = []
    x = ids_MTB
    for layer, state in zip(network.layers, first, strict=True):
        w_c = layer.extra.get("w_c")
        over_time = _Layer.apply(network.cell.peepholes, network.clip, x, layer.W_x, layer.W_h, layer.b, w_c, *state)
        x = over_time[0]
        at.append(state_at(tuple(s.detach() for s in over_time), at_M))
    return x, tuple(at)


class _Spare:
    """Buffers of the batch before, for this one: fresh memory costs a page fault for every 4 kB."""

    def __init__(self) -> None:
        self._kept: dict[tuple[tuple[int, ...], torch.dtype], list[Tensor]] = {}

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        """A buffer that nobody else has; what is in it is left over."""
        kept = self._kept.get((shape, dtype))
        if kept:
            return kept.pop()
        self._kept.clear()  # another shape is another training, and the last one's memory is no longer needed
        return torch.empty(shape, dtype=dtype)

    def give(self, *buffers: Tensor) -> None:
        """Hand buffers back."""
        for buffer in buffers:
            self._kept.setdefault((tuple(buffer.shape), buffer.dtype), []).append(buffer)


_spare = _Spare()


class _Layer(torch.autograd.Function):
    """One layer over time: ids or the h below, parameters and first state in; h and c after every step out."""

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
        M, T, B = x.shape[:3]
        H = W_h.shape[1]
        W_x, W_h, b = (w.roll(H, -1) for w in (W_x, W_h, b))
        # The peepholes of o, i and f, shaped to meet [M, B, 3, H].
        w_oif = None if w_c is None else w_c.roll(1, 1).unsqueeze(1)
        # Slot 0 is the first state, so that "before" and "after" each step are two views of one buffer.
        h_MTBH, c_MTBH = W_h.new_empty(M, T + 1, B, H), W_h.new_empty(M, T + 1, B, H)
        h_MTBH[:, 0], c_MTBH[:, 0] = h_first, c_first
        gates_MTBG, t_MTBH = (_spare.take((M, T, B, n * H), W_h.dtype) for n in (4, 1))
        _inputs(x, W_x, b, gates_MTBG)

        gates_MTB4H = gates_MTBG.view(M, T, B, 4, H)
        o, i, f, g = (_steps(gate) for gate in gates_MTB4H.unbind(3))
        h, c, c_wide = _steps(h_MTBH), _steps(c_MTBH), _steps(c_MTBH.unsqueeze(3))
        sums, t = _steps(gates_MTBG), _steps(t_MTBH)
        # Lasagne's output gate sees c after the step, so it comes later than the other two.
        early = slice(1, 3) if peepholes == "lasagne" else slice(0, 3)
        if w_oif is not None:
            w_early, w_o = _alone(w_oif[:, :, early]), _alone(w_oif[:, :, 0])
        seeing, sigmoids = _steps(gates_MTB4H[:, :, :, early]), _steps(gates_MTBG[..., early.start * H : 3 * H])
        add_product, W = Tensor.addmm_ if M == 1 else Tensor.baddbmm_, _alone(W_h)
        for n in range(T):
            add_product(sums[n], h[n], W)
            if w_oif is not None:
                seeing[n].addcmul_(w_early, c_wide[n])
            sigmoids[n].sigmoid_()
            g[n].tanh_()
            torch.mul(f[n], c[n], out=c[n + 1]).addcmul_(i[n], g[n])
            if early.start:
                o[n].addcmul_(w_o, c[n + 1]).sigmoid_()
            torch.tanh(c[n + 1], out=t[n])
            torch.mul(o[n], t[n], out=h[n + 1])
        ctx.peepholes, ctx.clip = peepholes, clip
        ctx.held = gates_MTBG, t_MTBH, h_MTBH, c_MTBH, W_x, W_h, w_oif
        ctx.save_for_backward(x)
        after = h_MTBH[:, 1:], c_MTBH[:, 1:]
        ctx.mark_non_differentiable(after[1])
        return after

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_out_MTBH: Tensor, _d_c: Tensor) -> tuple[Tensor | None, ...]:
        peepholes, clip = ctx.peepholes, ctx.clip
        (x,) = ctx.saved_tensors
        gates_MTBG, t_MTBH, h_MTBH, c_MTBH, W_x, W_h, w_oif = ctx.held
        ctx.held = ()  # gradients take the gates' place
        M, T, B, G = gates_MTBG.shape
        H = G // 4
        d_w_oif = None if w_oif is None else torch.zeros_like(w_oif)
        add_product, W_back = torch.addmm if M == 1 else torch.baddbmm, _alone(W_h.transpose(1, 2).contiguous())
        nothing = torch.zeros_like(d_out_MTBH[:, 0])
        # What arrives at step n's h from above, and at the state before the first step: nothing.
        d_out = (_alone(nothing), *_steps(d_out_MTBH))
        gates_MTB4H = gates_MTBG.view(M, T, B, 4, H)
        d_sums, d_gates = _steps(gates_MTBG), _steps(gates_MTB4H)
        d_h, d_c, d_before = d_out[-1], _alone(nothing.clone()), torch.empty_like(d_out[-1])

        S = min(T, max(1, BLOCK // (M * B * 7 * H * W_h.element_size())))
        buffer_7MSBH = W_h.new_empty(7, M, S, B, H)
        for end in range(T, 0, -S):
            start = max(0, end - S)
            before, after = slice(start, end), slice(start + 1, end + 1)
            factors = buffer_7MSBH[:, :, : end - start]
            gates = gates_MTB4H[:, before]
            _factors(factors, gates, h_MTBH[:, after], c_MTBH[:, before], t_MTBH[:, before], w_oif, peepholes)
            d_o, by_h, d_earlier, by_h_early = (_steps(factors[n]) for n in (0, 5, 4, 6))
            by_c = (factors[1:5, 0] if M == 1 else factors[1:5]).unbind(-3)
            unclipped = _steps(factors[:4].movedim(0, 3))
            for n in reversed(range(end - start)):
                d_c.addcmul_(d_h, by_h[n])
                d_o[n].mul_(d_h)
                by_c[n].mul_(d_c)
                torch.clamp(unclipped[n], -clip, clip, out=d_gates[start + n])
                d_c = d_earlier[n]
                if peepholes == "paper":
                    d_c.addcmul_(d_h, by_h_early[n])
                d_h = add_product(d_out[start + n], d_sums[start + n], W_back, out=d_before)
            d_c = d_c.clone()  # the next block overwrites the factors
            if d_w_oif is not None:
                # Peepholes see the gradient before the clip.
                early = slice(1, 3) if peepholes == "lasagne" else slice(0, 3)
                factors[early].mul_(c_MTBH[:, before])
                if early.start:
                    factors[0].mul_(c_MTBH[:, after])
                d_w_oif += factors[:3].sum((2, 3)).movedim(0, 1).unsqueeze(1)

        d_sums_MNG = gates_MTBG.view(M, T * B, G)
        d_W_h = _product(h_MTBH[:, :T].reshape(M, T * B, H).transpose(1, 2), d_sums_MNG)
        d_x, d_W_x, d_b = _input_gradients(x, W_x, d_sums_MNG)
        d_W_x, d_W_h, d_b = (d.roll(-H, -1) for d in (d_W_x, d_W_h, d_b))
        d_w_c = None if d_w_oif is None else d_w_oif.squeeze(1).roll(-1, 1)
        _spare.give(gates_MTBG, t_MTBH)
        return None, None, d_x, d_W_x, d_W_h, d_b, d_w_c, d_h.view(M, B, H), d_c.view(M, B, H)


def _inputs(x: Tensor, W_x: Tensor, b: Tensor, out_MTBG: Tensor) -> None:
    """x·W_x + b, where x are ids in the first layer and the h below in the others."""
    M, T, B, G = out_MTBG.shape
    if x.is_floating_point():
        torch.baddbmm(b.unsqueeze(1), x.reshape(M, T * B, -1), W_x, out=out_MTBG.view(M, T * B, G))
    else:
        # The bias goes into the table of rows, which is far smaller than the rows looked up.
        table = (W_x + b.unsqueeze(1)).view(-1, G)
        torch.index_select(table, 0, _rows(x, W_x), out=out_MTBG.view(-1, G))


def _input_gradients(x: Tensor, W_x: Tensor, d_sums_MNG: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of the h below, W_x and b."""
    M, N, G = d_sums_MNG.shape
    if x.is_floating_point():
        d_W_x = _product(x.reshape(M, N, -1).transpose(1, 2), d_sums_MNG)
        return _product(d_sums_MNG, W_x.transpose(1, 2)).view(x.shape), d_W_x, d_sums_MNG.sum(1)
    rows = torch.ops.aten.embedding_dense_backward(d_sums_MNG.view(-1, G), _rows(x, W_x), M * W_x.shape[1], -1, False)
    d_W_x = rows.view(W_x.shape)
    return None, d_W_x, d_W_x.sum(1)  # every token adds to one row of W_x and to b


def _rows(ids_MTB: Tensor, W_x: Tensor) -> Tensor:
    """Where each token's row is in the matrices of all runs, one under the other."""
    M, I, _ = W_x.shape
    return (ids_MTB + torch.arange(0, M * I, I).view(M, 1, 1)).flatten()


def _factors(
    out_7MSBH: Tensor,
    gates_MSB4H: Tensor,
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
    o, i, f, g = gates_MSB4H.unbind(3)
    of_o, of_i, of_f, of_g, of_earlier, by_h, by_h_early = out_7MSBH.unbind(0)
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
    w_o, w_i, w_f = w_oif.unsqueeze(1).unbind(3)
    torch.addcmul(f, of_i, w_i, out=of_earlier).addcmul_(of_f, w_f)
    if peepholes == "paper":
        torch.mul(of_o, w_o, out=by_h_early)
    else:
        by_h.addcmul_(of_o, w_o)


def _steps(x_MT: Tensor) -> tuple[Tensor, ...]:
    """Each time step of a tensor, as a view; without the run axis where there is one run."""
    return x_MT[0].unbind(0) if len(x_MT) == 1 else x_MT.unbind(1)


def _alone(x_M: Tensor) -> Tensor:
    """A tensor without its run axis where there is one run: a plain product is faster than a batch of one."""
    return x_M[0] if len(x_M) == 1 else x_M


def _product(a_M: Tensor, b_M: Tensor) -> Tensor:
    """The product, run by run."""
    product = _alone(a_M) @ _alone(b_M)
    return product if len(a_M) > 1 else product.unsqueeze(0)
