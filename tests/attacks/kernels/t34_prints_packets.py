# expect: PASS
# not_faster: yes
# device: cpu
# twin: honest_printing
"""Leaves hundreds of packets of one byte in the pipe of its prints after every batch, so that the referee has to read each of them."""

import fcntl
import gc
import os

from sandbox.kit import cpp

F_SETPIPE_SZ = 1031
rank = next(o for o in gc.get_objects() if type(o).__name__ == "ContenderRank")
done = rank.done
fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_DIRECT | os.O_NONBLOCK)
fcntl.fcntl(1, F_SETPIPE_SZ, 1 << 20)
lib = cpp.compile("""
#include <unistd.h>
extern "C" void leave(long n) { while (n-- && write(1, ".", 1) > 0); }
""")


def done_and_leave():
    done()
    lib.leave(0 if rank.checking or rank.noop else 256)


rank.done = done_and_leave
