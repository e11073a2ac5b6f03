"""Players: everybody who submits kernels.

player        names, the class `Player`, and the kernel access that a player has
make_player   the player that a word stands for
fixed, file   kernels that are there already: named ones, and files
model, agent  a model; the loop in which it writes, reads its verdict and revises
program/      agent programs, in a jail of their own
trace         what a model or a program did, as it is journalled and replayed
"""
