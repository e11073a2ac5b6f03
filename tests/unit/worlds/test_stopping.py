"""A stopped world stays stopped, or its activity is detected: real processes, stopped by a group and by signals."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from waiting import PATIENCE_S, eventually

from sandbox.jail import cgroup
from sandbox.machine import processes
from sandbox.timing.disturbance import StoppedActivity
from sandbox.worlds import stopping, world_process
from sandbox.worlds.failures import HarnessFailed
from sandbox.worlds.stopping import Activity, ByGroup, BySignals, CannotStop, await_stopped
from sandbox.worlds.world_process import END_SECONDS, WorldProcess

FORKS_WHEN_TOLD = """
import os, signal, time
def fork(number, frame):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
signal.signal(signal.SIGUSR1, fork)
print(flush=True)
while True: pass
"""


class Started:
    """A process that keeps a core busy, and the way to stop it."""

    def __init__(self, stopping: str, program: str = FORKS_WHEN_TOLD) -> None:
        self.group = cgroup.make(None, counted=False) if stopping == "group" else None
        argv = [sys.executable, "-c", program]
        self.process = subprocess.Popen(
            self.group.starts(argv) if self.group else argv, stdout=subprocess.PIPE, start_new_session=True
        )
        self.process.stdout.readline()
        pid = self.process.pid
        self.stopping: ByGroup | BySignals = (
            ByGroup(self.group) if self.group else BySignals(lambda: processes.tree(pid), lambda: [pid], kernel=True)
        )

    def end(self) -> None:
        self.stopping.go_on()
        assert processes.kill_tree(self.process.pid)
        self.process.wait()
        self.process.stdout.close()
        if self.group is not None:
            assert self.group.remove()


@pytest.fixture(params=["group", "signals"])
def started(request) -> Iterator[Started]:
    if request.param == "group" and isinstance(reason := cgroup.place(counted=False), str):
        pytest.skip(f"no group can be made: {reason}")
    started = Started(request.param)
    yield started
    started.end()


def rest(stopping: ByGroup | BySignals, pid: int, *signals: signal.Signals) -> StoppedActivity:
    """Stops the process once and sends it these signals from outside; returns the stopped activity."""
    stopping.halt()
    stopping.complete()
    stopping.await_stopped()
    before, began = stopping.activity(), time.monotonic()
    for number in signals:
        os.kill(pid, number)
    time.sleep(0.1)
    until = time.monotonic() + PATIENCE_S  # on a busy machine, a process that continues waits for a core
    while before.pids and signals and time.monotonic() < until and not has_gone_on(before, stopping.activity()):
        time.sleep(0.01)
    stopped_activity = StoppedActivity()
    stopped_activity.note(before, stopping.activity(), time.monotonic() - began)
    return stopped_activity


def has_gone_on(before: Activity, now: Activity) -> bool:
    return now.cpu_seconds > before.cpu_seconds + 0.02 and now.pids > before.pids


def test_starting_world_is_stopped_before_ranks_are_known():
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    process.stdout.readline()  # it reads no modules now: state "D", waiting for a disk, counts as stopped, too
    ranks: list[int] = []
    stopping = BySignals(lambda: [process.pid], lambda: ranks, kernel=True)
    try:
        stopping.halt()
        stopping.complete()
        stopping.await_stopped()
        assert processes.state(process.pid) == "T"
        stopping.go_on()
        ranks.append(process.pid)
        stopping.halt()  # stops the ranks at once, before other processes are searched
        stopping.await_stopped()
        assert processes.state(process.pid) == "T"
    finally:
        process.kill()
        process.communicate()


def test_a_rest_is_a_rest(started):
    pid = started.process.pid
    assert rest(started.stopping, pid).disturbed == 0
    used = started.stopping.meter()
    assert used() == pytest.approx(0.0, abs=0.005)
    started.stopping.go_on([pid])  # but for this one
    eventually(lambda: processes.state(pid) == "T")
    processes.resume([pid])
    eventually(lambda: used() > 0.02)


def test_world_continued_by_signal_is_seen(started):
    found = rest(started.stopping, started.process.pid, signal.SIGUSR1, signal.SIGCONT)
    if started.group is not None:
        assert found.disturbed == 0
    else:
        assert found.disturbed == 1
        assert found.cpu_seconds > 0.0
        assert found.processes == 1


@pytest.mark.parametrize(
    ("priority", "busy", "runs", "error"),
    [(0, 0.95, 0.0, HarnessFailed), (0, 0.5, 0.0, CannotStop), (0, 0.95, 0.9, CannotStop), (5, 0.95, 0.0, CannotStop)],
    ids=["it waits", "others leave cores", "it runs on", "it gives way"],
)
def test_only_a_busy_machine_excuses_a_late_stop(monkeypatch, priority, busy, runs, error):
    """busy, runs: the shares of the cores and of one core that others and the process use."""
    monkeypatch.setattr(stopping, "STOP_SECONDS", 0.5)
    monkeypatch.setattr(processes, "LEAST_SECONDS", 0.1)
    monkeypatch.setattr(processes, "outside_seconds", lambda: busy * len(os.sched_getaffinity(0)) * time.monotonic())
    monkeypatch.setattr(processes, "is_runnable", lambda pid: True)  # like a process that waits for a core
    monkeypatch.setattr(processes, "cpu_seconds", lambda pids: runs * time.monotonic())
    started = Started("signals", f"import os, time; os.nice({priority}); print(flush=True); time.sleep(60)")
    try:
        with pytest.raises(error):
            await_stopped([started.process.pid])  # which was not told to stop
    finally:
        started.end()


def test_endless_ended_processes_gain_no_time(monkeypatch):
    for name in ("pause", "has_threads"):
        monkeypatch.setattr(processes, name, lambda pid: False)
    stopping = BySignals(lambda: [*range(1, 202)], lambda: [1], kernel=True)
    stopping.halt()
    stopping.complete()
    with pytest.raises(CannotStop, match="it has 201 processes; at most 192 are allowed"):
        stopping.await_stopped()


def test_next_referee_kills_frozen_leftovers(monkeypatch):
    if isinstance(place := cgroup.place(counted=False), str):
        pytest.skip(f"no group can be made: {place}")
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    with monkeypatch.context() as patched:
        patched.setattr(cgroup.os, "getpid", lambda: ended.pid)
        group = cgroup.make(None, counted=False)
    left = subprocess.Popen(group.starts(["/bin/sleep", "600"]))
    eventually((group.path / "cgroup.procs").read_text)
    group.set_frozen(True)
    cgroup.place.cache_clear()
    assert cgroup.place(counted=False) == place
    assert left.wait(PATIENCE_S) == -signal.SIGKILL
    assert not group.path.exists()


def test_fault_needs_some_rests_and_a_tenth():
    idle, busy = Activity(1.0), Activity(1.001)
    stopped_activity = StoppedActivity()
    for _ in range(20):
        stopped_activity.note(idle, idle, 0.01)
    for count in range(1, 4):
        assert not stopped_activity.fault("baseline")
        stopped_activity.note(idle, busy, 0.01)
        assert stopped_activity.disturbed == count
    assert "in 3 of 23 stops, while the baseline was timed" in stopped_activity.fault("baseline")
    stopped_activity.note(idle, Activity(1.001), 0.1)  # stopping itself may take a hundredth of a long stop
    assert stopped_activity.disturbed == 3


@pytest.mark.parametrize(("freed", "disturbed"), [(1 << 20, 0), (1 << 30, 1)])
def test_memory_freed_for_a_stopped_kernel_counts(freed, disturbed):
    group = SimpleNamespace(cpu_seconds=lambda: 1.0, memory=iter([2 << 30, (2 << 30) - freed]).__next__)
    stopped_activity = StoppedActivity()
    stopped_activity.note(ByGroup(group).activity(), ByGroup(group).activity(), 0.01)
    assert stopped_activity.disturbed == disturbed


def test_packets_count_as_work_of_the_system():
    before = processes.packet_seconds(os.getpid())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert processes.packet_seconds(os.getpid()) > before


def test_unknown_processes_are_stopped_in_turn(monkeypatch):
    trees, told = iter([[1, 7], [1, 7, 8], [1, 7, 8]]), []
    monkeypatch.setattr(processes, "pause", lambda pids: told.append(set(pids)))
    monkeypatch.setattr(processes, "has_threads", lambda pid: pid == 7)  # 8 has ended
    stopping = BySignals(lambda: next(trees), lambda: [1], kernel=True)
    stopping.halt()
    assert stopping.complete()
    assert told == [{1}, {7}, {8}]
    assert stopping.pids() == [1, 7, 8]


def test_held_ranks_stop_before_their_group_goes_on(monkeypatch):
    told = []
    monkeypatch.setattr(processes, "pause", told.append)
    ByGroup(SimpleNamespace(set_frozen=told.append)).go_on([7])
    assert told == [[7], False]


def test_world_says_whether_an_unknown_process_ran(monkeypatch):
    started = Started("signals")
    pid = started.process.pid
    jail = SimpleNamespace(name="bubblewrap")
    spec = SimpleNamespace(kernel=True, ranks=1, trusted=False, jail=jail)
    bound = SimpleNamespace(group=None, excess=str)
    world = WorldProcess(spec, SimpleNamespace(tree=lambda: processes.tree(pid), is_there=True), bound, None)
    try:
        for seconds, excess in ((60.0, ""), (0.0, str([pid]))):
            monkeypatch.setattr(world_process, "MEMORY_CHECK_SECONDS", seconds)
            assert world.excess() == excess
        world.find_ranks()
        with patch.object(processes, "pin") as pin:
            world.pin(0, [3])
        pin.assert_called_once_with(pid, [3])
        assert not world.pause()
        assert world.ran_s > 0
        world.print_stacks()  # with a handler that forks
        eventually(lambda: len(processes.tree(pid)) == 2)
        world.halt()
        assert (world.pause(), world.pause()) == (True, False)  # it is known then
        world.await_stopped()
        assert world.helpers() == processes.tree(pid)[1:]
        monkeypatch.setattr(processes, "packet_seconds", lambda of: 90.0 * (of == pid))
        assert world.activity().cpu_seconds >= 90.0
        jail.name = "none"  # the packets there are the whole machine's
        assert world.activity().cpu_seconds < 90.0
        ran_s = world.ran_s
        time.sleep(0.01)
        assert world.ran_s == ran_s
    finally:
        started.end()


@pytest.mark.parametrize(("killed", "removed"), [(True, True), (False, True), (True, False)])
def test_world_is_gone_with_processes_and_group(killed, removed, monkeypatch):
    order = []
    first = SimpleNamespace(tree=list, kill=lambda: order.append("kill") or killed)
    bound = SimpleNamespace(group=None, close=lambda: order.append("group") or removed)
    folder = SimpleNamespace(remove=lambda: order.append("folder"))
    slept = []
    monkeypatch.setattr(world_process, "time", SimpleNamespace(monotonic=lambda: float(len(slept)), sleep=slept.append))
    monkeypatch.setattr(processes, "send", lambda pids, number: None)
    monkeypatch.setattr(processes, "runs", lambda pid: len(slept) < 9)
    world_process.ask_to_end(lambda: [7])
    assert len(slept) == END_SECONDS
    monkeypatch.setattr(world_process, "ask_to_end", lambda tree: order.append("ask"))
    for name in ("bubblewrap", "nested"):
        spec = SimpleNamespace(kernel=True, jail=SimpleNamespace(profile=SimpleNamespace(name=name)))
        assert WorldProcess(spec, first, bound, folder).close() is (killed and removed)
    assert order == ["kill", "group", "folder", "ask", "kill", "group", "folder"]
