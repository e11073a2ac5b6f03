"""Profiles a kernel from outside: a separate world, and hardware counters over a row of calls."""
