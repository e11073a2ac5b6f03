"""Duels: two players at one problem, and a final in which their kernels run against each other.

events   what happens in a duel, as it is journalled and replayed
state    the duel so far, folded from its events; the winner
opening  a duel's players, and the header of its journal
match    plays a duel: clock, judging in turn, final
journal  duels on disk
card     the result to share, as text and SVG
ratings  ratings of the players, from all duels
"""
