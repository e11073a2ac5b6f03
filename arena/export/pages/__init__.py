"""Static pages of attempts: an index, and a page for each. They need no script and nothing from elsewhere."""
