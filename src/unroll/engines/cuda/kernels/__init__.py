"""Recurrent layers over time, on an NVIDIA GPU."""
