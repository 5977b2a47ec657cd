"""Machine code for this very processor, made where it runs."""
