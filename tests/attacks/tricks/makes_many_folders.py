# effect: hides
"""Makes folders, pipes and odd names where the judge, its kit and its leases keep theirs."""


def trick(call):
    names = ("pkb-kernels", "pkb-canary", "pkb-spectator", "pkb-arena-notes", "pkb-world")
    with contextlib.suppress(OSError):
        os.mkfifo("/tmp/pkb-arena-lease-cores")
    for number in range(NUMBER):
        with contextlib.suppress(OSError):
            os.mkdir(f"/tmp/{names[number % len(names)]}-{number}")
    with contextlib.suppress(OSError):
        os.mkdir(b"/tmp/kernel-\xff\xfe.py")
    return call
