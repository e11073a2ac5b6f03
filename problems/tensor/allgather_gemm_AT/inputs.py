"""Inputs of problem 11: the same as problem 12's, the computation differs in its layout only."""

from problems.shared.inputs.gathered_gemm import draw

__all__ = ["draw"]
