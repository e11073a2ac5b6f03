# effect: benign
"""A thread that waits for events and for a time, as event loops do."""


def trick(call):
    def wait():
        epoll = select.epoll()
        while True:
            epoll.poll(1.0)

    threading.Thread(target=wait, daemon=True).start()
    return call
