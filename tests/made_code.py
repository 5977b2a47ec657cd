"""Machine code made as this is imported: by a server that forks processes, which would else make it one by one."""

from __future__ import annotations

from unroll import compiled_dropout, head_code, panels, shares
from unroll.cell_code import gru, lstm, rnn
from unroll.head import LEAK
from unroll.kernels import _time_code
from unroll.optimisers import _compiled, adam, rmsprop

for _looks in (True, False):
    _time_code.forward_for(32, lstm.Step("paper"), _looks, False)
    for _weighs in (True, False):
        _time_code.backward_for(32, lstm.Step("paper"), _looks, _weighs, False)
for _bits, _cell in ((32, gru.Step()), (64, rnn.Step())):  # of one layer, and a few rows
    _time_code.forward_for(_bits, _cell, True, False)
    _time_code.backward_for(_bits, _cell, True, False, False)
for _bits in (32, 64):
    _time_code.scatter_for(_bits)
    _time_code.sums_for(_bits)
    _time_code.weights_for(_bits, False)
    compiled_dropout._factors_for(_bits)
    _compiled._look_for(_bits)
    shares._add_for(_bits)
    for _drops in (True, False):
        head_code.forward_for(_bits, LEAK, _drops, False)
        head_code.backward_for(_bits, LEAK, _drops, False)
    for _transposed in (True, False):
        panels._pack_for(_bits, _transposed, False)
_compiled._change_for(adam, 32)
_compiled._change_for(rmsprop, 64)
