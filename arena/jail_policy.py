"""What may run without walls: a person's own kernels, and a model's only where that person says so."""

from arena.errors import MachineError

NO_JAIL = ("", "none")


class NoJail(MachineError):
    """Code that nobody has read would run with this user's rights."""


def is_jail(jail_name: str) -> bool:
    """Whether a profile's name, as a referee's Ready and every Result have it, stands for walls."""
    return jail_name not in NO_JAIL


def require_jail(jail_name: str, unsafe: bool) -> None:
    """Lets model-written code pass where there is a jail, or where the person at the keyboard takes the risk.

    jail_name: the profile of the referee that would judge it; unsafe: the person said --unsafe.

    Raises:
        NoJail: neither (exit code 3).
    """
    if is_jail(jail_name) or unsafe:
        return
    raise NoJail(
        "a model's kernel would run without a jail: it could read your files, use the network and stop your processes",
        "`pkb-arena doctor` says what the jail needs (mostly: apt-get install bubblewrap); --unsafe runs it all the same",
    )
