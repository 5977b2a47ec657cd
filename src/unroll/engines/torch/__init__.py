"""The truth: plain, short, any device, any cell."""
