"""The attack suite itself: every attack of the catalogue has its kernels, and the bait detects harm."""

from pathlib import Path

import pytest

from arena.workspace.named_kernels import BASELINE
from benchmarks.attacks.attack_suite import TWIN, read_catalogue, read_kernels
from sandbox.protocol.events import Log
from sandbox.protocol.verdict import Verdict

FOLDER = Path(__file__).parent
KERNELS = {kernel.name: kernel for kernel in read_kernels(FOLDER)}


def test_every_attack_has_kernel_and_honest_twin():
    ids = [attack.id for attack in read_catalogue(FOLDER)]
    assert len(ids) == 89
    assert {kernel.attack[0] for kernel in KERNELS.values()} == {*"AHT", TWIN[0], "-"}  # each has a test file
    attacks = [kernel for kernel in KERNELS.values() if kernel.attack not in (TWIN, "-")]
    assert {kernel.attack for kernel in attacks} == set(ids)
    for twin in {kernel.twin for kernel in attacks} - {BASELINE}:
        assert (KERNELS[twin].attack, KERNELS[twin].expect) == (TWIN, (Verdict.PASS,))


REACHES_OUT = """
import socket
with socket.create_connection(("127.0.0.1", @TCP_PORT@)) as tcp:
    tcp.send(b"x")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.sendto(b"x", ("127.0.0.1", @UDP_PORT@))
with socket.socket(socket.AF_UNIX) as abstract:
    abstract.connect("\\0@ABSTRACT@")
print(open("@HOME_CANARY@").read())
def solution(tensor):
    return tensor.clone()
"""
CANARY_SAID = "the canary in what the referee said"


@pytest.mark.further
def test_bait_is_taken_where_there_is_no_jail(without_jail, bait):
    """Counter-check of the suite: without a jail the probes and the bait do find something."""
    setting = without_jail.setting("allreduce")
    pid = without_jail.process.pid
    result = without_jail.judge(setting, bait.fill(KERNELS["h06_looks_for_keys"].source, pid), rounds=0)
    assert result.jail == "none"
    assert result.verdict is Verdict.LOAD_ERROR
    assert str(bait.canary) in result.failure.text
    assert bait.harm(without_jail.events, jailed=False) == ()  # it names the file but does not show its content
    without_jail.judge(setting, bait.fill(REACHES_OUT, pid), rounds=0)
    assert bait.harm(without_jail.events, jailed=False) == (
        "a connection over TCP",
        "a connection over an abstract socket",
        "a datagram",
        CANARY_SAID,
    )
    halves = ((0, bait.secret[:9]), (1, "of another rank"), (0, bait.secret[9:]))  # as ranks write at the same time
    assert bait.harm([Log(run_id="r", rank=rank, text=text) for rank, text in halves], jailed=False) == (CANARY_SAID,)
    clamps = without_jail.judge(setting, KERNELS["t29_asks_for_more_of_its_core"].source, rounds=0)
    assert clamps.verdict is Verdict.PASS
