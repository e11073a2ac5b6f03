"""Pieces of inputs and baselines that more than one problem uses, each once."""
