"""Worlds forked by a process that has imported torch: what they may keep, and the error if one cannot be started."""

import faulthandler
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock, Mock, call

import pytest
import torch
from waiting import PATIENCE_S

from sandbox.jail import joining
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import FULL, NESTED, NONE
from sandbox.machine.devices import kind_of
from sandbox.machine.processes import forked
from sandbox.protocol import frames
from sandbox.rank import fork_server, kernel_compilers, launcher
from sandbox.rank.rank import prepare_process
from sandbox.worlds import first_process, world_process
from sandbox.worlds.first_process import FirstProcess
from sandbox.worlds.fork_server import ForkServers, sealed_copy
from sandbox.worlds.rank_wire import RankEnds
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
        assert FirstProcess(process).tree() == [process.pid]
        process.kill()
        process.wait()
        assert not world.is_there
        assert world.tree() == []
        assert world.kill()  # it has not killed this test


@pytest.mark.parametrize(
    ("profile", "why_not", "forks"), [(NONE, "no", True), (FULL, "", True), (FULL, "no", False), (NESTED, "", False)]
)
def test_only_jails_that_can_be_joined_are(monkeypatch, profile, why_not, forks):
    monkeypatch.setattr(joining, "why_not", lambda *_: why_not)
    for name in ("_forked", "started", "wrapped_for", "launch_plan"):
        monkeypatch.setattr(first_process, name, MagicMock())
    first = first_process.start(
        MagicMock(jail=Jail(profile, b"", {}), ranks=1), [RankEnds(1, 2, 3)], 4, *[MagicMock()] * 3
    )
    assert (first is first_process._forked.return_value) is forks


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
    monkeypatch.setattr(fork_server, "import_ahead", lambda _: seen.append(begun.wait(PATIENCE_S)))
    referee, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    referee.close()
    threads = threading.active_count()
    with server:
        fork_server.serve(server, "")
    assert seen == [True, threads]  # it forks without other threads


@pytest.mark.slow
def test_process_of_a_rank_tells_where_it_ends(tmp_path):
    def end():
        sys.stderr = (tmp_path / "said").open("w")
        faulthandler.disable()
        torch.set_num_threads(2)
        prepare_process()
        assert (faulthandler.is_enabled(), torch.get_num_threads()) == (True, 1)
        for number in (signal.SIGUSR1, signal.SIGINT):
            os.kill(os.getpid(), number)
        if not os.fork():
            os._exit(0)  # no rank
        os._exit(7)

    assert os.waitpid(forked(end), 0)[1] == 7 << 8
    assert (tmp_path / "said").read_text().count("most recent call first") == 2


def test_each_rank_gets_its_own_ends_and_cores(monkeypatch, tmp_path):
    device = Mock()
    monkeypatch.setitem(sys.modules, "made_device", SimpleNamespace(device=lambda rank: device))
    monkeypatch.setattr(kernel_compilers, "watch", device.watch)
    files = [(tmp_path / name).open("w+") for name in "abcdefg"]
    ends = [file.fileno() for file in files]
    cores = [[], [max(os.sched_getaffinity(0))]]
    plan = launcher.LaunchPlan(2, False, "made_device", str(tmp_path), cores, ends[:2], ends[2:4], ends[4:6], ends[6])

    def serve(rank, ranks, sock, report, folder, device):
        left = {end for end in ends if Path(f"/proc/self/fd/{end}").exists()}
        names = [os.environ[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]
        found = rank, ranks, sock.fileno(), report, left, folder.is_dir(), names, os.sched_getaffinity(0)
        os.write(1, repr([found, folder.name, *device.mock_calls]).encode())
        os.write(2, b".")
        return Mock()

    monkeypatch.setattr(launcher.socket, "socket", lambda fileno: SimpleNamespace(fileno=lambda: fileno))
    os.waitpid(forked(lambda: launcher._rank(plan, 1, serve)), 0)
    said = [Path(file.name).read_text() for file in files]
    own = 1, 2, ends[1], ends[3], {ends[1], ends[3]}, True, ["1", "1", "2"], {cores[1][0]}
    told = [own, "rank1", call.join(1, 2, str(tmp_path)), call.warm_up(), call.watch()]
    assert said == ["", "", "", "", "", f"{told}.", ""]
    for file in files:
        file.close()


def test_launcher_stays_while_orphans_of_ranks_do(monkeypatch):
    """Without a PID namespace the referee finds them as its descendants."""
    monkeypatch.setattr(launcher.resource, "setrlimit", list)
    status, theirs = socket.socketpair()
    told, tells = os.pipe()
    stays, lets = os.pipe()

    def rank(*_):
        if not os.fork():
            os.read(stays, 1)
            os.write(tells, str(os.getppid()).encode())

    monkeypatch.setattr(launcher, "_rank", rank)
    plan = launcher.LaunchPlan(1, True, "", "", [], [], [], [], theirs.fileno())
    child = forked(lambda: launcher.launch(plan))
    theirs.close()
    assert frames.decode(status.recv(frames.SIZE)) == (frames.Kind.DONE, 0, 70 << 8)
    assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.write(lets, b"x")
    assert int(os.read(told, 16)) == child
    assert os.waitpid(child, 0) == (child, 0)
    for fd in (told, tells, stays, lets):
        os.close(fd)
