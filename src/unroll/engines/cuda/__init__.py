"""CUDA C++ for NVIDIA GPUs, compiled where it runs."""
