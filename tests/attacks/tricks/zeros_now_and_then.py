# effect: wrong
"""Zeros in one of so many timed calls."""


def trick(call):
    seen = [0]

    def changed(tensor):
        seen[0] += timed(tensor)
        return torch.zeros_like(tensor) if timed(tensor) and seen[0] % EVERY == 0 else call(tensor)

    return changed
