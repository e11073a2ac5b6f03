"""The terminal app: shows the engine's state and decides nothing."""
