"""Processes that join a jail: what is told if they cannot, and that they keep no privilege."""

import json
import os
import resource
import subprocess
import sys

import pytest
from waiting import eventually

from sandbox.jail import joining
from sandbox.jail.choice import choose
from sandbox.jail.joining import NotInside
from sandbox.jail.profiles import CORE_BYTES, JOINED, OPEN_FILES, PROCESSES
from sandbox.machine.processes import tree

SPACES = [f"/proc/self/ns/{name}" for name in ("mnt", "pid", "net", "ipc", "uts")]
LIMITS = {resource.RLIMIT_NPROC: PROCESSES, resource.RLIMIT_NOFILE: OPEN_FILES, resource.RLIMIT_CORE: CORE_BYTES}


def test_a_process_that_keeps_privileges_is_no_world():
    if os.getuid() != 0:
        pytest.skip("a normal user has no privileges to keep")
    with pytest.raises(NotInside, match=r"a world would keep CapPrm.*Seccomp 0"):
        joining._require_restricted(0, 0)


def test_a_jail_that_cannot_be_joined_is_told():
    program = "import os\ninput()\nif os.fork() == 0: input()\nos.wait()"
    waits = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    try:
        with pytest.raises(NotInside, match="bubblewrap has started no process inside"):
            joining.join(waits.pid)
        waits.stdin.write(b"\n")
        waits.stdin.flush()
        eventually(lambda: len(tree(waits.pid)) == 2)
        # The process is in no jail: its namespaces are those of this process, so there is none to join.
        with pytest.raises(NotInside, match="cannot join the namespaces"):
            joining.join(waits.pid)
    finally:
        waits.kill()
        waits.communicate()


@pytest.fixture
def jail():
    jail = choose()
    if jail.name not in JOINED or jail.filter is None:
        pytest.skip("no jail here that a forked world would join")
    return jail


def test_joined_jail_of_try_leaves_nothing(jail):
    before, descriptors = tree(os.getpid()), os.listdir("/proc/self/fd")
    joining.why_not.cache_clear()
    assert joining.why_not(jail.profile, jail.filter) == ""
    assert {*tree(os.getpid())} <= {*before}  # others may end meanwhile
    assert len(os.listdir("/proc/self/fd")) <= len(descriptors)


def test_a_filter_that_the_kernel_refuses_is_told(jail):
    assert "bubblewrap ended" in joining.why_not(jail.profile, b"\xff" * 8)


def test_joined_process_has_all_of_its_jail(jail, monkeypatch):
    def told(uid: int, gid: int) -> None:
        facts = [*map(os.readlink, SPACES)], os.getgroups(), [*map(resource.getrlimit, LIMITS)]
        raise PermissionError(json.dumps(facts))

    monkeypatch.setattr(joining, "_require_restricted", told)
    if os.getuid() == 0:
        join = joining.join
        monkeypatch.setattr(joining, "join", lambda builder: os.setgroups([7]) or join(builder))
    joining.why_not.cache_clear()
    spaces, groups, limits = json.loads(joining.why_not(jail.profile, jail.filter))
    joining.why_not.cache_clear()
    assert set(spaces).isdisjoint(map(os.readlink, SPACES))
    assert limits == [[most] * 2 for most in LIMITS.values()]
    assert groups == [] or os.getuid()
