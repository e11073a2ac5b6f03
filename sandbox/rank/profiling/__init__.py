"""A world that is looked at and never timed, on its ranks: the calls, and the spans that torch's profiler saw."""
