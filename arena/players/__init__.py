"""Players: all who submit kernels.

player        names, the class `Player`, and the kernel access that a player has
make_player   creates the player for a player's name
fixed, file   players of existing kernels: named ones, and files
model, agent  a model; the loop in which it writes, reads its verdict and revises
program/      agent programs, each in its own jail
trace         the events of a model or program, for the journal and replays
"""
