"""Results side by side: of every player here, and the published ones."""
