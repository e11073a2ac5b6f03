"""Profiles a kernel on its ranks: the calls, and the spans of torch's profiler."""
