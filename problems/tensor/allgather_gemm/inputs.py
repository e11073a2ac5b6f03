"""Inputs of problem 12: a column slice of A and this rank's own B."""

from problems.shared.inputs.dense import draw_gathered as draw

__all__ = ["draw"]
