"""The board: the results of every player, and the published results."""
