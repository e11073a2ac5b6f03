"""What the referee receives from a world's ranks: the earliest failure is the cause; ended processes have a status."""

import contextlib
import fcntl
import os
import select
import signal
import socket
from types import SimpleNamespace

import pytest
from socket_wires import OtherEnds, wires_of

from sandbox.protocol import frames
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import Wake
from sandbox.worlds import rank_wire
from sandbox.worlds import wires as wires_module
from sandbox.worlds.failures import OutputsLost, WorldFailed
from sandbox.worlds.rank_wire import Received
from sandbox.worlds.wires import Wires


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of the wires, which stands still."""
    clock = SimpleNamespace(now=1000.0)
    for module in (wires_module, rank_wire):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def alive() -> str:
    return ""


def ends(ends: OtherEnds, rank: int, status: int) -> None:
    """Sends the wait status of a rank's process as the launcher does, and the beginning of a frame that never ends."""
    ends.launcher.sendall(frames.encode(Kind.DONE, rank, status) + bytes(frames.SIZE - 1))
    ends.serve()


def failure_of(wires: Wires) -> tuple[str, int, int]:
    """Returns the failure of the world: (kind, rank, wait status)."""
    with pytest.raises(WorldFailed) as failed:
        wires.missing(Kind.DONE, alive)
    return failed.value.kind, failed.value.rank, failed.value.status


BROKEN = "RuntimeError: [/gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer"


@pytest.mark.parametrize("broken", [False, True])
def test_cause_of_ended_line_is_awaited(broken: bool) -> None:
    """It also explains a connection that had broken before."""
    with wires_of() as (wires, theirs):
        if broken:
            theirs.raises(0, BROKEN)
            assert wires.missing(Kind.DONE, alive) == [1]
        theirs.ranks[1].close()
        theirs.serve()
        assert wires.missing(Kind.DONE, alive) == [1]
        ends(theirs, 1, signal.SIGSEGV)
        assert failure_of(wires) == ("DIED", 1, signal.SIGSEGV)


def test_what_other_ranks_report_afterwards_is_not_cause() -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[1].close()
        theirs.serve()
        theirs.ranks[0].sendall(frames.encode(Kind.RAISED))
        theirs.serve()
        assert wires.missing(Kind.DONE, alive) == [1]
        ends(theirs, 1, signal.SIGABRT)
        assert failure_of(wires) == ("DIED", 1, signal.SIGABRT)


def test_what_another_rank_reported_before_is_the_cause() -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[0].sendall(frames.encode(Kind.RAISED))
        theirs.serve()
        theirs.ranks[1].close()
        ends(theirs, 1, signal.SIGABRT)
        assert failure_of(wires)[:2] == ("RAISED", 0)


def test_broken_connection_is_failure_where_no_peer_ends(clock: SimpleNamespace) -> None:
    with wires_of() as (wires, theirs):
        theirs.raises(0, BROKEN)
        assert wires.missing(Kind.DONE, alive) == [1]
        clock.now += wires_module.PEER_SECONDS
        assert wires.missing(Kind.DONE, alive) == [1]
        clock.now += 0.01
        assert failure_of(wires) == ("RAISED", 0, 0)


def test_peer_exception_explains_broken_connection() -> None:
    with wires_of() as (wires, theirs):
        theirs.raises(0, BROKEN)
        theirs.raises(1, "ValueError: no")
        assert failure_of(wires) == ("RAISED", 1, 0)


def test_compilations_are_limited_because_each_becomes_an_event(monkeypatch) -> None:
    for name in ("MOST_COMPILATIONS", "MOST_FRAMES"):
        monkeypatch.setattr(rank_wire, name, 4)
    with wires_of() as (wires, theirs):
        once = frames.encode(Kind.COMPILING) + frames.encode(Kind.COMPILED)
        theirs.ranks[0].sendall(2 * once)
        theirs.serve()
        assert wires.missing(Kind.DONE, alive) == [0, 1]
        theirs.ranks[0].sendall(once)
        theirs.serve()
        assert failure_of(wires)[:2] == ("PROTOCOL", 0)
        theirs.ranks[1].sendall(5 * frames.encode(Kind.DONE))
        theirs.serve()
        assert not wires.ranks[1].answers  # too many are dropped


def test_compiling_counts_while_it_lasts(clock: SimpleNamespace) -> None:
    with wires_of() as (wires, theirs):
        for kind, seconds in ((Kind.COMPILING, 3.0), (Kind.COMPILED, 3.0), (Kind.COMPILING, 6.0), (Kind.COMPILED, 6.0)):
            theirs.ranks[0].sendall(frames.encode(kind))
            theirs.serve()
            clock.now += 3.0
            assert wires.compile_seconds == seconds


def test_unheard_ranks_wait_with_frames_and_prints() -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[0].sendall(frames.encode(Kind.DONE))
        os.write(theirs.pipes[0], b"printed")
        with contextlib.suppress(OutputsLost), wires.unheard():
            theirs.serve()
            assert (wires.missing(Kind.DONE, alive), wires.said_by(0)) == ([0, 1], "")
            raise OutputsLost
        theirs.serve()
        assert (wires.missing(Kind.DONE, alive), wires.said_by(0)) == ([1], "printed")
        with pytest.raises(WorldFailed, match="sent DONE where ARMED was due"):
            wires.missing(Kind.ARMED, alive)


def test_go_reaches_only_ranks_that_are_released() -> None:
    with wires_of() as (wires, theirs):
        for ranks, first in (([1], 1), (None, 0)):
            wires.release(ranks)
            assert select.select(theirs.ranks, [], [], 0)[0] == theirs.ranks[first:]
        wires.send([Wake(), Wake()])
        assert not any(wire.sock.getblocking() for wire in wires.ranks)  # reading waits for no rank
        theirs.ranks[0].close()
        wires.release()  # the next wait reports that it is gone


def test_packets_of_prints_are_read_together() -> None:
    with wires_of() as (_, theirs):
        fcntl.fcntl(theirs.pipes[0], fcntl.F_SETFL, os.O_DIRECT)
        for _ in range(10):
            os.write(theirs.pipes[0], b"x")
        theirs.serve()
        with open(os.devnull, "wb") as other:
            os.dup2(other.fileno(), theirs.pipes[0])  # closes the pipe
        theirs.serve()
        assert theirs.printed == ["x" * 10]


def test_endless_prints_and_descriptors_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_wire, "OUTPUT_FATAL", 5)
    read, write = os.pipe()
    os.set_blocking(read, False)
    with wires_of() as (wires, theirs), open(read, "rb", buffering=0) as pipe:
        socket.send_fds(theirs.ranks[0], [frames.encode(Kind.DONE)], [write])
        os.close(write)
        for failure in (None, ("FLOOD", 0, 0)):
            os.write(theirs.pipes[0], b"abc")
            theirs.serve()
            assert failure is None or failure_of(wires) == failure
        assert pipe.read() == b""  # nobody can write to it


@pytest.mark.parametrize("peer_answers", [True, False])
def test_answer_that_was_given_before_end_counts(peer_answers: bool) -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[1].sendall(frames.encode(Kind.DONE))
        theirs.serve()
        theirs.ranks[1].close()
        ends(theirs, 1, 0)
        assert wires.missing(Kind.DONE, alive) == [0]
        if not peer_answers:
            theirs.ranks[0].close()
            ends(theirs, 0, signal.SIGSEGV)
            assert failure_of(wires) == ("DIED", 0, signal.SIGSEGV)
            return
        theirs.ranks[0].sendall(frames.encode(Kind.DONE))
        theirs.serve()
        assert wires.missing(Kind.DONE, alive) == []
        wires.take()
        assert failure_of(wires) == ("DIED", 1, 0)


def test_line_closed_by_living_process_is_awaited_briefly(clock: SimpleNamespace) -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[1].close()
        theirs.serve()
        assert wires.missing(Kind.DONE, alive) == [1]
        clock.now += wires_module.STATUS_SECONDS + 0.01
        assert failure_of(wires) == ("DIED", 1, -1)


def test_without_its_launcher_nobody_says_how_rank_ended() -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[1].close()
        theirs.launcher.close()
        theirs.serve()
        assert failure_of(wires) == ("DIED", 1, -1)


def test_exhausted_memory_is_cause_of_end() -> None:
    with wires_of() as (wires, theirs):
        theirs.ranks[0].close()
        ends(theirs, 0, signal.SIGKILL)
        with pytest.raises(WorldFailed) as failed:
            wires.missing(Kind.DONE, lambda: "the memory is used up")
        assert (failed.value.kind, failed.value.rank, failed.value.text) == ("NO_MEMORY", 0, "the memory is used up")


def test_answers_before_a_sync_are_dropped() -> None:
    with wires_of() as (wires, theirs):
        for rank, kind, number in ((0, Kind.DONE, None), (0, Kind.SYNC, 7), (1, Kind.SYNC, 6)):
            wires.ranks[rank].answers.append(Received(kind, 0, number, []))
        assert not wires.take_synced(7)
        wires.ranks[1].answers.append(Received(Kind.SYNC, 0, 7, []))
        assert wires.take_synced(7)
        assert not any(wire.answers for wire in wires.ranks)
        theirs.ranks[1].close()
        theirs.serve()
        for kind, rank in (("DIED", 1), ("FLOOD", 0)):
            with pytest.raises(WorldFailed) as failed:
                wires.take_synced(8)
            assert (failed.value.kind, failed.value.rank) == (kind, rank)
            wires.fail(WorldFailed("FLOOD", 0))
