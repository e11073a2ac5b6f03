"""Demo mode without its screen: plays scenes with live and recorded duels one after another."""
