"""The rule without a jail: the user's own kernels may run, a model's kernels only with --unsafe."""

from arena.errors import MachineError

NO_JAIL = ("", "none")


class NoJail(MachineError):
    """Without a jail, a model's code would run with this user's rights."""


def is_jail(jail_name: str) -> bool:
    """Returns whether a profile name, from a referee's Ready or a Result, means a jail."""
    return jail_name not in NO_JAIL


def require_jail(jail_name: str, unsafe: bool) -> None:
    """Checks that model-written code may run: there is a jail, or the user accepts the risk.

    jail_name: the profile of the referee that would judge it; unsafe: the user passed --unsafe.

    Raises:
        NoJail: there is no jail and `unsafe` is false (exit code 3).
    """
    if is_jail(jail_name) or unsafe:
        return
    raise NoJail(
        "a model's kernel would run without a jail: it could read your files, use the network and stop your processes",
        "install bubblewrap (`pkb-arena doctor` shows what is missing), or run it without isolation: --unsafe",
    )


def isolation_words(jail: str) -> str:
    """Describes a jail profile as "isolated", "partly isolated" or "not isolated"."""
    return {"full": "isolated", "none": "not isolated"}.get(jail, "partly isolated")
