"""Which jail is chosen, and what of a self-test is told: neither starts a jail here."""

import json
import os
from typing import Any
from unittest.mock import Mock

import pytest

from sandbox.jail import choice
from sandbox.jail.choice import Jail, choose, why_not
from sandbox.jail.profiles import FULL, NESTED, NONE, ROOT, Caps, Profile, Wrapped
from sandbox.jail.seccomp import NoFilter
from sandbox.jail.selftest import FORBIDDEN, NEEDED

OLD, NONE_AT_ALL = "Can't mount proc", "no system-call filter"


@pytest.mark.parametrize(
    ("uid", "missing", "filters", "reasons", "chosen", "rejected"),
    [
        (1000, None, {"full": b"f"}, {"full": None}, (FULL, b"f"), {}),
        (0, None, {"root": b"r"}, {"root": None}, (ROOT, b"r"), {}),
        (1000, None, {"full": b"f", "nested": b"n"}, {"full": OLD, "nested": None}, (NESTED, b"n"), {"full": OLD}),
        (
            *(0, None, {"root": b"r", "nested": b"n", "none": b"x"}, {"root": OLD, "nested": "leaks"}, (NONE, b"x")),
            {"root": OLD, "nested": "leaks"},
        ),
        (0, None, {"root": b"r", "nested": b"n"}, {"root": OLD, "nested": OLD}, (NONE, None), {"root": OLD}),
        (0, None, {"root": b"r"}, {"root": OLD}, (NONE, None), {"root": OLD, "nested": NONE_AT_ALL}),
        (1000, "needs Linux", {"none": b"x"}, {}, (NONE, b"x"), {"full": "needs Linux"}),
    ],
)
def test_first_jail_that_passes_is_chosen(
    monkeypatch: pytest.MonkeyPatch, uid: int, missing: Any, filters: Any, reasons: Any, chosen: Any, rejected: Any
) -> None:
    def build_filter(name: str) -> bytes:
        if name not in filters:
            raise NoFilter(NONE_AT_ALL)
        return filters[name]

    def tried(profile: Profile, program: bytes) -> str | None:
        assert program == filters[profile.name]
        return reasons[profile.name]

    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(choice, "_missing", lambda: missing)
    monkeypatch.setattr(choice, "build_filter", build_filter)
    monkeypatch.setattr(choice, "why_not", tried)
    assert choose.__wrapped__() == Jail(*chosen, rejected)


RIGHT = dict.fromkeys(FORBIDDEN, False) | dict.fromkeys(NEEDED, True)


@pytest.mark.parametrize(
    ("profile", "uid", "said", "complaints", "reason"),
    [
        (ROOT, 0, RIGHT, "", None),
        (ROOT, 0, RIGHT | {"is_root": True, "has_tmp": False}, "", "from inside, a kernel is_root"),
        (FULL, 1000, RIGHT | {"is_root": True}, "", "from inside, a kernel is_root"),
        (NESTED, 1000, RIGHT | {"is_root": True}, "", None),
        (NESTED, 0, RIGHT | {"is_root": True}, "", "from inside, a kernel is_root"),
        (ROOT, 0, RIGHT | {"has_tmp": False, "has_memfd": False}, "", "without has_memfd, has_tmp"),
        (
            ROOT,
            0,
            {name: found for name, found in RIGHT.items() if name != "reads_home"},
            "",
            "from inside, a kernel reads_home",
        ),
        (ROOT, 0, {name: found for name, found in RIGHT.items() if name != "has_tmp"}, "", "without has_tmp"),
        (ROOT, 0, None, "first\nbwrap: no such option\n", "bwrap: no such option"),
        (ROOT, 0, None, "\n", "the self-test ended with status 3"),
    ],
)
def test_holes_of_a_jail_are_named(monkeypatch: pytest.MonkeyPatch, profile, uid, said, complaints, reason) -> None:
    seen: list[Any] = []

    def wrap(self: Profile, argv: list[str], folder: Any, extra: Any, filter_fd: int) -> Wrapped:
        seen.append((json.loads(argv[-1])["referee"], os.read(filter_fd, 9), dict(extra), folder.is_dir()))
        return Wrapped(argv, {}, (filter_fd,))

    def run(test: Wrapped) -> tuple[int, bytes, bytes]:
        seen.append(os.environ["PKB_CANARY"])
        return 3, json.dumps(said).encode() if said else b"", complaints.encode()

    monkeypatch.setattr(Profile, "wrap", wrap)
    monkeypatch.setattr(choice, "_run", run)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    descriptors = len(os.listdir("/proc/self/fd"))
    assert why_not(profile, b"filter") == reason
    assert seen == [(os.getpid(), b"filter", {}, True), "canary"]
    assert "PKB_CANARY" not in os.environ
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_jail_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "_run", Mock(side_effect=OSError("no bwrap")))
    assert why_not(NONE, b"filter") == "no bwrap"


def test_agent_programs_keep_timers_of_their_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "build_filter", lambda name, timed=True: f"{name} {timed}".encode())
    monkeypatch.setattr(choice, "memory_file", lambda program: program)
    root = Jail(ROOT, b"own", {})
    found = [root.filter_fd(), root.filter_fd(Caps(1, 1, 1, 1.0)), Jail(NONE, None, {}).filter_fd()]
    assert (found, root.name) == ([b"own", b"root False", None], "root")
