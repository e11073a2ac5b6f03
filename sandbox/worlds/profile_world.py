"""A spare world of its own for a profile: started for it, killed after it, never one that is timed."""

import contextlib
import os
import secrets
import select
import subprocess
import time
from pathlib import Path

import msgspec

from sandbox.jail import memory as bounds
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import python_module, python_path
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.placement import cores_of
from sandbox.machine.processes import kill_tree
from sandbox.protocol import profile
from sandbox.protocol.events import Setting
from sandbox.protocol.profile import MOST_BYTES, ProfilePlan, RankProfile, decode_report
from sandbox.worlds.world_folder import WorldFolder

LIMIT_S = 90.0
"""From the start to the last report: torch is imported, a kernel may compile, and then it is called a few times."""
OUTPUT_BYTES = 64 << 10
WARM, CALLS = 3, 5


class ProfileFailed(Exception):
    """No rank reported. The message says why, with the last words of the world."""


def profile_world(
    setting: Setting,
    kernel_name: str,
    source: str,
    kind: DeviceKind,
    jail: Jail,
    readable: tuple[Path, ...] = (),
) -> list[RankProfile]:
    """Runs a kernel in a world behind the walls, and returns what its ranks say. Blocks for seconds.

    readable: problem folders of the user's own.

    Raises:
        ProfileFailed: a rank said nothing in time, or nothing that can be read.
    """
    folder = WorldFolder()
    with contextlib.ExitStack() as after:
        after.callback(folder.remove)
        pipes = [os.pipe() for _ in range(setting.world)]
        for end, _ in pipes:
            after.callback(os.close, end)
        plan = ProfilePlan(
            setting=setting,
            source=source,
            kernel_name=kernel_name,
            device_module=kind.rank_module,
            folder=str(jail.profile.inside(folder.path)),
            cores=[list(cores_of(rank, setting.world, ())) for rank in range(setting.world)],
            reports=[end for _, end in pipes],
            seed=secrets.randbits(60),
            warm=WARM,
            calls=CALLS,
        )
        extra = {"PYTHONPATH": python_path()} | kind.environment(())
        argv = python_module("sandbox.rank.profile", profile.encode(plan).decode())
        wrapped = jail.wrap(argv, folder.path, extra, readable, kind.device_files(()))
        said = after.enter_context(open(folder.path.with_suffix(".out"), "w+b"))
        after.callback(Path(said.name).unlink)
        bound = bounds.Bound(jail.profile, folder.path, bounds.limit_bytes())
        after.callback(bound.close)
        process = subprocess.Popen(
            bound.starts(wrapped.argv),
            pass_fds=[*plan.reports, *wrapped.fds],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=wrapped.env,
            cwd=folder.path,
            start_new_session=True,
        )
        after.callback(process.wait, 5.0)
        after.callback(kill_tree, process.pid)
        for fd in (*plan.reports, *wrapped.fds):
            os.close(fd)
        texts = _read([end for end, _ in pipes], time.monotonic() + LIMIT_S)
        said.seek(max(0, said.seek(0, os.SEEK_END) - OUTPUT_BYTES))
        words = said.read().decode(errors="replace").strip()
        return [_decoded(rank, text, words) for rank, text in enumerate(texts)]


def _read(ends: list[int], deadline: float) -> list[bytes]:
    """What comes through each pipe until its end, at most MOST_BYTES of each."""
    texts = {end: bytearray() for end in ends}
    waiting = set(ends)
    while waiting and (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select(list(waiting), [], [], left)
        for end in ready:
            piece = os.read(end, 1 << 16)
            texts[end] += piece
            if not piece or len(texts[end]) > MOST_BYTES:
                waiting.discard(end)
    return [bytes(texts[end]) for end in ends]


def _decoded(rank: int, text: bytes, words: str) -> RankProfile:
    last = (words.splitlines() or ["it said nothing"])[-1]
    try:
        report = decode_report(text)
    except msgspec.DecodeError:
        raise ProfileFailed(f"rank {rank} sent no report within {LIMIT_S:.0f} s: {last}") from None
    if report.rank != rank or len(text) > MOST_BYTES:
        raise ProfileFailed(f"rank {rank} sent something that is no report of its own")
    return report
