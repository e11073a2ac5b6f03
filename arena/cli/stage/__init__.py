"""Commands that show the arena to others."""
