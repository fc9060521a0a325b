"""Notebook kernels that share a GPU."""
