"""The kit's blocks, called very often with random sizes, roots and delays, every result compared."""
