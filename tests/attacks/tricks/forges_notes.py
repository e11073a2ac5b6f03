# effect: hides
"""Forges notes of a lease, in which somebody more urgent has waited since ever."""


def trick(call):
    for uid in (0, os.getuid()):
        folder = f"/tmp/pkb-arena-notes-{uid}"
        with contextlib.suppress(OSError):
            os.mkdir(folder)
            for number in range(NUMBER):
                with open(f"{folder}/{number}", "w") as file:
                    file.write('{"devices": ["cores"], "urgency": 0, "since": 1e300}')
    return call
