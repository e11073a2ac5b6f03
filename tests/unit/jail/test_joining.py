"""Processes that join a jail: what is told if they cannot, and that they keep no privilege."""

import os
import subprocess
import sys

import pytest
from waiting import eventually

from sandbox.jail import joining
from sandbox.jail.choice import choose
from sandbox.jail.profiles import JOINED
from sandbox.machine.processes import tree


def _in_child(call) -> tuple[int, str]:
    """Runs call() in a forked child; returns (exit status, the error that it raised)."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            call()
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode())
            status = 1
        os._exit(status)
    os.close(write)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(read, "rb") as pipe:
        return status, pipe.read().decode()


def test_a_process_that_keeps_privileges_is_no_world():
    if os.getuid() != 0:
        pytest.skip("a normal user has no privileges to keep")
    status, said = _in_child(lambda: joining._require_restricted(0, 0))
    assert status == 1
    assert "NotInside: a world would keep CapPrm" in said
    assert "Seccomp 0" in said


def test_process_without_jail_has_nothing_to_join():
    status, said = _in_child(lambda: joining.join(os.getpid()))
    assert status == 1
    assert "bubblewrap has started no process inside" in said


def test_a_jail_that_cannot_be_joined_is_told():
    waits = subprocess.Popen(
        [sys.executable, "-c", "import os\nif os.fork() == 0: input()\nos.wait()"], stdin=subprocess.PIPE
    )
    try:
        eventually(lambda: len(tree(waits.pid)) == 2)
        # The process is in no jail: its namespaces are those of this process, so there is none to join.
        status, said = _in_child(lambda: joining.join(waits.pid))
        assert status == 1
        assert "NotInside: cannot join the namespaces" in said
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


def test_what_an_error_inside_says_is_handed_on(jail, monkeypatch):
    joining.why_not.cache_clear()

    def refused(builder: int) -> tuple[int, int]:
        raise PermissionError(13, "Permission denied", "/proc/7/ns/mnt")

    monkeypatch.setattr(joining, "join", refused)
    assert "Permission denied" in joining.why_not(jail.profile, jail.filter)
    joining.why_not.cache_clear()
