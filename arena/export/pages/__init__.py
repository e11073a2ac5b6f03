"""Static pages of attempts: an index, and a page for each. They need no scripts and no external files."""
