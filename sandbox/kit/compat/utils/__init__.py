"""The module names that kernels written for the ParallelKernelBench harness import; on sys.path of contender
ranks only."""
