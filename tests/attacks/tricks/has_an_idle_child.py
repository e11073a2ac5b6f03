# effect: benign
"""A child that sleeps, as a pool of compilers does."""


def trick(call):
    if os.fork() == 0:
        while True:
            rest(60)
    return call
