"""The walls around a contender world: what is started, in which environment, behind which profile.

profiles    the command lines, one per profile
inside      the first program of a world without a PID namespace
ending      asks it to end the world
signal_scope  signals that a world may send: to itself alone
seccomp     system calls that no kernel needs
selftest    what a payload tries from inside; a profile that lets it through is not used
choice      the strongest profile that this machine passes, found once per boot
memory      how much memory a world may hold
cgroup      a control group per world, where one can be made
guest       what a program of somebody else's may use, and what is hidden from it
usage       what it uses, held against that
"""
