"""Rows that read tokens and predict, on the CPU."""
