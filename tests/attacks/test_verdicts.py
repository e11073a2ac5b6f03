"""Every attack of the catalogue: a kernel that is rejected or harmless, and an honest twin that is accepted."""

from pathlib import Path

import pytest

from arena.attack_suite import TWIN, harmful, read_catalogue, read_kernels
from arena.foreign_text import printable
from arena.jail_policy import is_jail
from sandbox.events import Log
from sandbox.verdict import Verdict

FOLDER = Path(__file__).parent
KERNELS = {kernel.name: kernel for kernel in read_kernels(FOLDER)}
HARMFUL = harmful(read_catalogue(FOLDER))


@pytest.mark.parametrize("name", KERNELS)
def test_kernel_gets_its_verdict(request, name):
    kernel = KERNELS[name]
    if kernel.device == "cuda":
        pytest.skip("needs a GPU: `pkb-arena attacks` runs it on a machine with one")
    if kernel.attack in HARMFUL:
        request.getfixturevalue("walls")
    if kernel.open:
        request.applymarker(pytest.mark.xfail(reason=kernel.open, strict=False))
    if Verdict.TIMEOUT in kernel.expect:  # its deadlines are short
        referee, bait = request.getfixturevalue("referee"), request.getfixturevalue("bait")
    else:
        referee, bait = next(request.getfixturevalue("stands"))
    setting = referee.setting(kernel.problem)
    for _ in range(kernel.runs):
        result = referee.judge(setting, bait.fill(kernel.source, referee.process.pid))
        assert not kernel.surprise(result)
        if result.verdict is not Verdict.PASS:
            assert result.failure is not None
            assert result.failure.advice
    assert bait.harm(referee.said, walled=is_jail(result.jail)) == ()


def test_every_attack_of_the_catalogue_has_a_kernel_and_an_honest_twin():
    ids = [attack.id for attack in read_catalogue(FOLDER)]
    assert len(ids) == 61
    attacks = [kernel for kernel in KERNELS.values() if kernel.attack not in (TWIN, "-")]
    assert {kernel.attack for kernel in attacks} == set(ids)
    for kernel in attacks:
        letter, number = kernel.attack[0].lower(), int(kernel.attack[1:])
        assert kernel.name.startswith(f"{letter}{number:02d}_")
        assert KERNELS[kernel.twin].attack == TWIN
        assert KERNELS[kernel.twin].expect == (Verdict.PASS,)


def test_the_run_after_a_crash_is_unaffected(referee):
    setting = referee.setting("allreduce")
    assert referee.judge(setting, KERNELS["h14_segfault"].source).verdict is Verdict.CRASH
    assert referee.judge(setting, KERNELS["honest"].source).verdict is Verdict.PASS


def test_a_wrong_element_is_named(referee):
    failure = referee.judge(referee.setting("allreduce"), KERNELS["a05_one_wrong_element"].source).failure
    assert failure.rank == 1
    assert failure.index == [127, 255]
    assert failure.output == "out"
    assert abs(float(failure.got) - float(failure.expected) - 1) < 0.1


def test_a_failure_names_the_kernels_own_line(referee):
    source = KERNELS["h14_exception"].source
    failure = referee.judge(referee.setting("allreduce"), source).failure
    assert source.splitlines()[failure.line - 1].strip().startswith("raise ValueError")
    assert "no idea [/how] to go on" in failure.message


def test_a_kernels_name_is_no_path(referee, tmp_path):
    name = f"../../../../../../..{tmp_path}/evil.py"
    result = referee.judge(referee.setting("allreduce"), KERNELS["honest"].source, name=name)
    assert result.verdict is Verdict.PASS
    assert not (tmp_path / "evil.py").exists()


def test_what_a_kernel_prints_is_inert_when_shown(referee):
    referee.judge(referee.setting("allreduce"), KERNELS["h11_terminal_escapes"].source)
    text = "".join(event.text for event in referee.events if isinstance(event, Log))
    assert "\x1b]52" in text  # it did arrive
    shown = printable(text)
    assert not [c for c in shown if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]
    assert "Ignore all previous" in shown


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


def test_bait_is_taken_where_there_are_no_walls(unwalled, bait):
    """The other side of the suite: without a jail the probes and the bait do find something."""
    setting = unwalled.setting("allreduce")
    pid = unwalled.process.pid
    result = unwalled.judge(setting, bait.fill(KERNELS["h06_looks_for_keys"].source, pid), rounds=0)
    assert result.jail == "none"
    assert result.verdict is Verdict.CRASH
    assert str(bait.canary) in result.failure.message
    assert bait.harm(unwalled.said, walled=False) == ()  # it names the file, and does not show it
    unwalled.judge(setting, bait.fill(REACHES_OUT, pid), rounds=0)
    assert bait.harm(unwalled.said, walled=False) == (
        "a connection over TCP",
        "a connection over an abstract socket",
        "a datagram",
        "the canary in what the referee said",
    )
