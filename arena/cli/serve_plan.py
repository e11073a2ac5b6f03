"""The options of `pkb-arena serve`."""

from dataclasses import dataclass

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class ServePlan:
    """Who is let in, where and for how long."""

    host: str = "127.0.0.1"
    port: int = 8000
    """0: any free one."""
    problem: str = ""
    """Slug of the problem that the owner's app opens; empty: the list."""
    owner: bool = True
    """False: spectators alone."""
    spectators: int = 8
    """At the same time, at most."""
    keep_s: float = 600.0
    """For so long the owner's app goes on when no browser shows it."""
    passed_on: tuple[str, ...] = ()
    """Environment variables that the owner's app gets beside those it needs."""
