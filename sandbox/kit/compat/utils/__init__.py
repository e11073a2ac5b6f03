"""Module names that kernels for the ParallelKernelBench harness import. Only ranks have them on sys.path."""
