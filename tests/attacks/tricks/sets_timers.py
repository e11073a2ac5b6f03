# effect: hides
"""Timers that are watched many times, and go off while it is stopped."""


def trick(call):
    libc = ctypes.CDLL(None, use_errno=True)
    every = (ctypes.c_long * 4)(0, NUMBER * 1000, 0, 1_000_000)
    fd = libc.timerfd_create(1, 0)
    if fd >= 0:
        libc.timerfd_settime(fd, 0, every, None)
        call.kept = [select.epoll() for _ in range(200)]
        for epoll in call.kept:
            epoll.register(fd, select.EPOLLIN)
    with contextlib.suppress(OSError):
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    return call
