"""The paper, the benchmark against peers, and the contracts behind `unroll check`."""
