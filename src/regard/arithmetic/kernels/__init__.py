"""Kernels for a GPU, written in Triton, which is installed with PyTorch for CUDA on Linux."""
