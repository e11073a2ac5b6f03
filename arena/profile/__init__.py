"""Profiles kernels: a report for each rank, and a sentence on what takes its time."""
