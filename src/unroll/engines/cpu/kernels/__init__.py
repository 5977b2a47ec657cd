"""Recurrent layers over time, on the CPU."""
