"""Demo mode: scenes with live and recorded duels in turn, without the screen."""
