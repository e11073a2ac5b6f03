"""Demo mode: scenes that play by themselves, live duels in turns with recorded ones. Knows nothing of the screen."""
