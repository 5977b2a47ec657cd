"""Machine code made as this is imported: by a server that forks processes, which would else make it one by one."""

from __future__ import annotations

from unroll import compiled_dropout, head_code, panels, shares
from unroll.head import LEAK
from unroll.kernels import _lstm_code
from unroll.optimisers import _compiled, adam

for _looks in (True, False):
    _lstm_code.forward_for(32, "paper", _looks, False)
    for _weighs in (True, False):
        _lstm_code.backward_for(32, "paper", _looks, _weighs, False)
_lstm_code.scatter_for(32)
_lstm_code.sums_for(32)
_lstm_code.weights_for(32, False)
for _drops in (True, False):
    head_code.forward_for(32, LEAK, _drops, False)
    head_code.backward_for(32, LEAK, _drops, False)
compiled_dropout._factors_for(32)
_compiled._change_for(adam, 32)
_compiled._look_for(32)
shares._add_for(32)
for _transposed in (True, False):
    panels._pack_for(32, _transposed, False)
