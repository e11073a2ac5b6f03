"""The terminal app: shows what the engine knows and decides nothing."""
