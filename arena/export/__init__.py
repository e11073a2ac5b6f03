"""Bundles: results, kernels and traces in a folder that other programs, and other arenas, can read."""
