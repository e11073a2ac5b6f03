# effect: hides
"""Many children that end and are not waited for."""


def trick(call):
    for _ in range(NUMBER % 60):
        if os.fork() == 0:
            os._exit(0)
    return call
