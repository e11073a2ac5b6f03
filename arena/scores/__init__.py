"""Scores as the field defines them, each with an interval: from single results to what a board shows."""
