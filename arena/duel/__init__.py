"""Duels: two players at one problem, and a final in which their kernels run against each other.

events   the events of a duel, for the journal and replays
state    the state of a duel, folded from its events; the winner
match    plays a duel: players, clock, judging in turn, final
journal  duels on disk, and the ratings of their players
card     the result, as text, SVG and JSON
"""
