"""The paper, and the benchmark against peers."""
