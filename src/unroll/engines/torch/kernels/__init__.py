"""Recurrent layers over time, in torch."""
