"""Rows that read, predict and draw on an NVIDIA GPU."""
