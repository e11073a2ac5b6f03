"""The rule for kernels without a jail: a person's own may run, a model's only with --unsafe."""

from arena.errors import MachineError

NO_JAIL = ("", "none")


class NoJail(MachineError):
    """A model's code would run with this user's rights."""


def is_jail(jail_name: str) -> bool:
    """Whether this name of a profile, from a referee's Ready or a Result, is that of a jail."""
    return jail_name not in NO_JAIL


def require_jail(jail_name: str, unsafe: bool) -> None:
    """Checks that model-written code may run: there is a jail, or the user takes the risk.

    jail_name: the profile of the referee that would judge it; unsafe: the person said --unsafe.

    Raises:
        NoJail: neither (exit code 3).
    """
    if is_jail(jail_name) or unsafe:
        return
    raise NoJail(
        "a model's kernel would run without a jail: it could read your files, use the network and stop your processes",
        "install bubblewrap (`pkb-arena doctor` shows what is missing), or run it without isolation: --unsafe",
    )


def isolation_words(jail: str) -> str:
    """ "isolated", "partly isolated" or "not isolated": what a profile means to those who do not know its name."""
    return {"full": "isolated", "none": "not isolated"}.get(jail, "partly isolated")
