"""Kernels for a GPU, written in Triton, which PyTorch brings along for CUDA on Linux."""
