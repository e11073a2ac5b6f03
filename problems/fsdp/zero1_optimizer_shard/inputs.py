"""Inputs of problem 41: a batch slice, parameters on rank 0, this rank's slice of Adam's state."""

from problems.shared.inputs.training_step import arguments, draw

__all__ = ["arguments", "draw"]
