"""Profiling a kernel from outside: a world of its own, and hardware counters over a row of calls."""
