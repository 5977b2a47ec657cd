"""The paper and what lies beyond it, the benchmark against peers, and the contracts behind `unroll check`."""
