# effect: hides
"""Prints lines nested 100,000 deep, and lines without an end."""


def trick(call):
    state = {"calls": 0}

    def changed(tensor):
        state["calls"] += 1
        if state["calls"] % 64 == 1:
            os.write(1, b'{"a":' * 1000 + b"[" * 100_000 + b"\n" * (NUMBER % 2))
        return call(tensor)

    return changed
