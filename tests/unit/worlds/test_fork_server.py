"""Worlds forked by a process that has imported torch: what they may keep, and the error if one cannot be started."""

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from waiting import eventually

from sandbox.jail import joining
from sandbox.jail.choice import choose
from sandbox.jail.profiles import JOINED
from sandbox.machine.devices import kind_of
from sandbox.machine.processes import tree
from sandbox.rank import fork_server
from sandbox.worlds import world_process
from sandbox.worlds.first_process import FirstProcess
from sandbox.worlds.fork_server import ForkServers, sealed_copy
from sandbox.worlds.world_process import WorldProcess


def test_each_device_kind_has_one_server():
    servers = ForkServers()
    try:
        first = servers.of(kind_of("cpu"))
        assert servers.of(kind_of("cpu")) is first
        first.close()
        assert not first.runs
        assert servers.of(kind_of("cpu")) is not first
    finally:
        servers.close()


def test_unforked_world_has_no_processes_and_can_die():
    born, theirs = socket.socketpair()
    world = FirstProcess(None, born)
    assert not world.is_there
    theirs.close()
    assert world.tree() == []
    assert world.kill()


def test_process_number_is_unused_once_process_has_ended():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        born, theirs = socket.socketpair()
        handle = os.pidfd_open(process.pid)
        # This test's own process id in place of that of the handle, as if the id had been reused.
        socket.send_fds(theirs, [str(os.getpid()).encode()], [handle])
        os.close(handle)
        theirs.close()
        world = FirstProcess(None, born)
        assert world.tree()[0] == os.getpid()
        process.kill()
        process.wait()
        assert not world.is_there
        assert world.tree() == []
        assert world.kill()  # it has not killed this test


def test_copy_of_program_runs_and_cannot_be_changed():
    fd = sealed_copy(Path("/bin/sh").resolve())
    try:
        with pytest.raises(PermissionError):
            os.pwrite(fd, b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd, 0)
        done = subprocess.run(
            ["sh", "-c", "echo $0"], executable=f"/proc/self/fd/{fd}", pass_fds=[fd], capture_output=True, check=True
        )
        assert done.stdout == b"sh\n"
    finally:
        os.close(fd)


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


def test_memory_limit_of_world_has_room_for_devices(monkeypatch):
    limits, bound = [], SimpleNamespace(group=None, close=list)
    monkeypatch.setenv("PKB_WORLD_MEMORY", str(1 << 30))
    monkeypatch.setattr(world_process.bounds, "Bound", lambda *given: limits.append(given[-1]) or bound)
    monkeypatch.setattr(world_process, "start", lambda *given: SimpleNamespace(tree=list))
    jail, kind = SimpleNamespace(profile=None), SimpleNamespace(host_bytes=5)
    for trusted in (False, True):
        spec = SimpleNamespace(trusted=trusted, ranks=3, kind=kind, kernel=True, jail=jail)
        WorldProcess.start(spec, [], 0, ForkServers())._folder.remove()
    assert limits == [(1 << 30) + 15, None]


def test_signals_are_compiled_while_torch_loads(monkeypatch):
    begun, seen = threading.Event(), []
    monkeypatch.setattr(fork_server, "die_with_parent", list)
    monkeypatch.setattr(fork_server.signal, "signal", lambda *_: seen.append(threading.active_count()))
    monkeypatch.setattr(fork_server, "_load_signals", begun.set)
    monkeypatch.setattr(fork_server, "import_ahead", lambda _: seen.append(begun.wait(5)))
    referee, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    referee.close()
    threads = threading.active_count()
    with server:
        fork_server.serve(server, "")
    assert seen == [True, threads]  # it forks without other threads
