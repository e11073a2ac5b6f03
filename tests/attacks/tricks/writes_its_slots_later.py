# effect: wrong
"""Returns zeros, and writes to its output slots when the batch is done."""


def trick(call):
    def changed(tensor):
        slot = slot_of(tensor)
        right = call(tensor)
        if slot is None:
            return right

        def later():
            rest(LATER)
            slot.put(right)

        threading.Thread(target=later, daemon=True).start()
        return torch.zeros_like(tensor)

    return changed
