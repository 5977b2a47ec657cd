"""Machine code made as this is imported: by a server that forks processes, which would else make it one by one."""

from __future__ import annotations

from unroll.engines.cpu import dropout_masks, head_code, packing, partial_sums, time_code, update
from unroll.engines.cpu.cells import gru, lstm, rnn
from unroll.engines.cpu.optimisers import adam, rmsprop
from unroll.model.head import LEAK

for _looks in (True, False):
    time_code.forward_for(32, lstm.Step("paper"), _looks, False)
    for _weighs in (True, False):
        time_code.backward_for(32, lstm.Step("paper"), _looks, _weighs, False)
for _bits, _cell in ((32, gru.Step()), (64, rnn.Step())):  # of one layer, and a few rows
    time_code.forward_for(_bits, _cell, True, False)
    time_code.backward_for(_bits, _cell, True, False, False)
for _bits in (32, 64):
    time_code.scatter_for(_bits)
    time_code.sums_for(_bits)
    time_code.weights_for(_bits, False)
    dropout_masks._factors_for(_bits)
    update._look_for(_bits)
    partial_sums._add_for(_bits)
    for _drops in (True, False):
        head_code.forward_for(_bits, LEAK, _drops, False)
        head_code.backward_for(_bits, LEAK, _drops, False)
    for _transposed in (True, False):
        packing._pack_for(_bits, _transposed, False)
update._change_for(adam, 2, 32)
update._change_for(rmsprop, 1, 64)
