"""The benchmark's problems: one folder each, plus what they share. A leaf: it imports nothing of the arena."""
