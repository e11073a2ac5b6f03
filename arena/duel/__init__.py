"""Duels: two players at one problem, and a final in which their kernels run against each other.

events   the events of a duel, for the journal and replays
state    the state of a duel, folded from its events; the winner
opening  a duel's players, and the header of its journal
match    plays a duel: clock, judging in turn, final
journal  duels on disk
card     the result card, as text and SVG
ratings  ratings of the players, from all duels
"""
