"""The arena as a tool of other programs."""
