# effect: benign
"""Works in a thread, and joins it."""


def trick(call):
    def changed(tensor):
        found = []
        thread = threading.Thread(target=lambda: found.append(call(tensor)))
        thread.start()
        thread.join()
        return found[0]

    return changed
