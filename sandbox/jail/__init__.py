"""The isolation of worlds: command lines, environments and profiles.

profiles      command lines, one per profile
inside        the first program of a world without a PID namespace
seccomp       refuses system calls that no kernel needs
selftest      tries from inside what a kernel must not be able to do
choice        finds the strongest profile that passes the self-test
memory        limits the memory of a world, and checks an agent program against its caps
cgroup        makes a control group per world where the machine allows it
"""
