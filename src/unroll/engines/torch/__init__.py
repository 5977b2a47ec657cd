"""The plain engine, the truth: short, for any device and any cell."""
