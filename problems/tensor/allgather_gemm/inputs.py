"""Inputs of problem 12: a column slice of A and this rank's own B."""

from problems.shared.inputs.gathered_gemm import draw

__all__ = ["draw"]
