"""Inputs of problem 11: the same as problem 12's, the computation differs in its layout only."""

from problems.shared.inputs.dense import draw_gathered as draw

__all__ = ["draw"]
