"""Players: all who submit kernels.

player        names, the class `Player`, and the kernel access that a player has
make_player   players of models, named kernels and files, and the player for a name
agent         the loop in which a model writes, reads its verdict and revises
prompt        what a model is told; feedback: what it is told about its kernels
program/      agent programs, each in its own jail
trace         the events of a model or program, for the journal and replays
"""
