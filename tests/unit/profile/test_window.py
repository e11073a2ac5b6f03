"""A profile's calls in a row, on simulated GPUs: whatever ranks do, the calls end, and the counts are kept."""

import math
import socket
import threading
import time

import pytest
from playing_agent import RIGHT
from stored_runs import ALL_REDUCE as SETTING

from arena.profile.gpu_rules import Least, gpu_ranks
from arena.profile.rules import first_failure
from sandbox.jail.choice import choose
from sandbox.machine.devices import Cpu
from sandbox.machine.placement import RankGpu
from sandbox.protocol.kernel_files import Kernel
from sandbox.protocol.profile import SAID, TOLD
from sandbox.worlds import profiled_world
from sandbox.worlds.profiled_world import (
    MOST_CALLS,
    Place,
    ProfileFailed,
    _reported,
    calls_in_row,
    counted_row,
    profile_world,
)


@pytest.mark.parametrize(
    ("said", "calls"),
    [([1e-3, 2e-3], 400), ([5.0], 1), ([0.0], MOST_CALLS), ([math.nan, -1.0], MOST_CALLS), ([math.inf], MOST_CALLS)],
)
def test_whatever_ranks_say_a_row_ends(said: list[float], calls: int) -> None:
    assert calls_in_row(said) == calls


def test_a_rank_that_hangs_up_ends_the_row() -> None:
    ours, theirs = zip(*(socket.socketpair() for _ in range(2)), strict=True)
    theirs[0].sendall(SAID.pack(1e-3))

    def rank_1() -> None:
        theirs[1].sendall(SAID.pack(1e-3))
        assert TOLD.unpack(theirs[1].recv(TOLD.size)) == (800,)
        theirs[1].close()

    peer = threading.Thread(target=rank_1)
    peer.start()
    assert counted_row(ours, [RankGpu(0), RankGpu(1)], time.monotonic() + 30.0) is None
    peer.join()
    for end in (*ours, theirs[0]):
        end.close()


class PretendedGpus(Cpu):
    """CPU ranks that are profiled as if they had GPUs, so that torch's profiler sees no work of a GPU."""

    on_gpus = True

    def gpus(self, world: int) -> tuple[RankGpu, ...]:
        return tuple(RankGpu(rank) for rank in range(world))


@pytest.mark.slow
def test_calls_count_where_profiler_sees_nothing() -> None:
    found = profile_world(Place(SETTING, "kernel.py", Kernel(RIGHT), PretendedGpus(), choose()))
    assert found.outside.calls > 10
    assert 0 < found.outside.seconds < 100.0
    assert not any(each.failed for each in found.reports), found.reports
    assert all(each.unseen.startswith("torch's profiler saw no work of the GPU") for each in found.reports)
    ranks = gpu_ranks(found, Least(1e6, 1e6, 1e6))
    assert ranks[0].row_us == pytest.approx(found.outside.seconds / found.outside.calls * 1e6)


@pytest.mark.slow
def test_rank_failing_while_others_wait_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled_world, "AFTER_FAILURE_S", 1.0)
    source = RIGHT.replace(
        "    total =",
        "    import time\n    if dist.get_rank() == 1: raise ValueError('no such thing')\n    time.sleep(600)\n    total =",
    )
    found = profile_world(Place(SETTING, "kernel.py", Kernel(source), PretendedGpus(), choose()))
    assert found.outside is None
    assert "no such thing" in found.reports[1].failed
    assert "still at work" in found.reports[0].failed
    assert found.reports[1].failed_at < found.reports[0].failed_at


@pytest.mark.slow
def test_hanging_kernel_has_failed_and_dead_one_caused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiled_world, "LIMIT_S", 2.0)
    hangs = "import time\ndef solution(tensor):\n    time.sleep(600)\n"
    found = profile_world(Place(SETTING, "kernel.py", Kernel(hangs), Cpu(), choose()))
    assert [each.failed.partition(";")[0] for each in found.reports] == ["TIMEOUT: no report within 2 s"] * 2
    both = _reported([b"", b""], {0}, "")
    assert both[1].failed == "it ended without a report; it printed nothing"
    assert first_failure(both) is both[1]
    with pytest.raises(ProfileFailed, match="rank 0 ended without a report; last line printed: no jail"):
        _reported([b"", b""], set(), "no jail")
