"""Duels: two players at one problem, and a final in which their kernels run against each other.

events   what happens in a duel, as it is journalled and replayed
state    the duel so far, folded from its events; the winner
sides    what a player can be: a file, the house, the baseline, a model
match    plays a duel: clock, judging by turns, final
journal  duels on disk
card     the result to share, as text and SVG
ratings  ratings of the players, from all duels
"""
