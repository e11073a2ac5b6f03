"""Makes one profile for the app, in a process of its own: the request on stdin, messages on stdout.

    python -m arena.profile.main < REQUEST

SIGTERM ends it and its world. The app itself starts no world: waiting for children and reading megabytes of spans would
delay its screens.
"""

import signal
import sys

import msgspec

from arena.errors import ArenaError
from arena.profile.messages import Message, NotProfiled, ProfileRequest, encode
from arena.profile.profiling import profile_ranks, profile_with_ncu
from sandbox.machine.processes import adopt_orphans, die_with_parent


def main() -> None:
    """Reads a request, profiles its kernel and writes the result."""
    die_with_parent()
    adopt_orphans()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=ProfileRequest)
    try:
        _say(profile_with_ncu(request, _say) if request.ncu_file else profile_ranks(request, _say))
    except ArenaError as error:
        _say(NotProfiled(error.message, error.advice))


def _say(message: Message) -> None:
    sys.stdout.buffer.write(encode(message) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
