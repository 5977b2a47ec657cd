"""Compiles machine code on import, for a server that forks processes: each would else compile it again."""

from __future__ import annotations

from unroll.engines.cpu import (
    compiled_update,
    direct_head_code,
    dropout_masks,
    head_code,
    layer_code,
    packing,
    partial_sums,
)
from unroll.engines.cpu.cells import gru, lstm, rnn
from unroll.engines.cpu.optimisers import adam, rmsprop
from unroll.model.head import LEAK

for _looks in (True, False):
    layer_code.forward_for(32, lstm.Step("paper"), _looks, False)
    for _weighs in (True, False):
        layer_code.backward_for(32, lstm.Step("paper"), _looks, _weighs, False)
for _bits, _cell in ((32, gru.Step()), (64, rnn.Step())):  # for one layer and a few rows
    layer_code.forward_for(_bits, _cell, True, False)
    layer_code.backward_for(_bits, _cell, True, False, False)
for _bits in (32, 64):
    layer_code.scatter_for(_bits)
    layer_code.sums_for(_bits)
    layer_code.weights_for(_bits, False)
    dropout_masks._factors_for(_bits)
    compiled_update._check_for(_bits)
    partial_sums._add_for(_bits)
    for _drops in (True, False):
        head_code.forward_for(_bits, LEAK, _drops, False)
        head_code.backward_for(_bits, LEAK, _drops, False)
    for _transposed in (True, False):
        packing._pack_for(_bits, _transposed, False)
direct_head_code.forward_for(32, False)
direct_head_code.backward_for(32, False)
compiled_update._change_for(adam, 2, 2, 32, None, False)
compiled_update._change_for(rmsprop, 1, 0, 64, None, False)
