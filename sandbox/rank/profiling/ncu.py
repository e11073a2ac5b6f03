"""A world whose rank 0 runs under Nsight Compute: warm calls, then the one that is profiled.

    python -m sandbox.rank.profiling.ncu PLAN              the first process, which sends the results; it imports no torch
    python -m sandbox.rank.profiling.ncu FILE              forks the other ranks whenever rank 0 has started
    ncu ... python -m sandbox.rank.profiling.ncu FILE MODE     rank 0

PLAN is JSON, and FILE has it. Peers of rank 0 run without ncu. Rank 0 starts again for every pass of an application replay. The
process that forks its peers has imported torch once. Clocks stay as they are (`--clock-control none`).
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from sandbox.machine.processes import die_with_parent, forked
from sandbox.protocol.profile import MOST_FILE, MOST_TEXT, NcuAnswer, NcuPlan, Replay, decode_ncu_plan, encode
from sandbox.rank.launcher import find_compat, import_ahead

LEFT_OUT = "nccl|px_device_barrier|px_device_wait"
"""Parts of the names of kernels that only wait for peers and exchange data with them."""
MODULE = "sandbox.rank.profiling.ncu"
START_S = 30.0
"""Limit for the start of the process that forks the peers."""
MOST_LINES = 10_000
IMPORT_S = 40.0
"""Limit for reading a report."""
PLAN, PEERS = "ncu-plan.json", "ncu-peers"
"""Files in the world's folder: the plan, and the socket of the process that forks the peers of rank 0."""
FAILED = "pkb-arena: rank "
"""The start of the line in which a rank reports its failure."""
PEER_FAILED = 3
ORDER_BYTES = 4096
FAILURE = "failure"
"""The file to which a peer writes the reason of its failure."""
PEER_FIRST_S, LOOK_S = 0.5, 0.02


def main() -> None:
    """Runs one of the processes."""
    die_with_parent()
    given = sys.argv[1]
    if given.startswith("{"):
        _start(given)
    elif sys.argv[2:]:
        _first(decode_ncu_plan(Path(given).read_bytes()), sys.argv[2])
    else:
        _fork_peers(decode_ncu_plan(Path(given).read_bytes()))


def _start(given: str) -> None:
    """Tries the replays of the plan in their order."""
    plan = decode_ncu_plan(given)
    folder = Path(plan.world.folder)
    (folder / PLAN).write_text(given)
    # Started before ncu, whose environment would profile these processes, too.
    peers = subprocess.Popen([sys.executable, "-m", MODULE, str(folder / PLAN)], stdin=subprocess.DEVNULL)
    try:
        _wait_for(folder / PEERS, peers)
        _try_all(plan, folder)
    finally:
        peers.kill()
        peers.wait()


def _wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    until = time.monotonic() + START_S
    while not path.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)


def _try_all(plan: NcuPlan, folder: Path) -> None:
    refused: dict[str, str] = {}
    for replay in plan.replays:
        report = folder / f"{replay.mode}.ncu-rep"
        started = time.monotonic()
        why = _record(plan, replay, report)
        seconds = time.monotonic() - started
        if not why:
            csv, why = _as_csv(plan, report)
        if not why and report.stat().st_size <= MOST_FILE:
            _send(plan, NcuAnswer(replay.mode, seconds, csv, refused), report.read_bytes())
            return
        refused[replay.mode] = why or f"the report is larger than {MOST_FILE >> 20} MiB"
    _send(plan, NcuAnswer(refused=refused), b"")


def _send(plan: NcuPlan, answer: NcuAnswer, report: bytes) -> None:
    with os.fdopen(plan.answer, "wb") as stream:
        stream.write(encode(answer))
    with os.fdopen(plan.file, "wb") as stream:
        stream.write(report)


def command(plan: NcuPlan, replay: Replay, report: Path) -> list[str]:
    """The command line of ncu for one replay."""
    sections = [word for name in replay.sections for word in ("--section", name)]
    return [
        *(plan.ncu, "--clock-control", "none", "--replay-mode", replay.mode, *sections),
        *("--target-processes", "application-only", "--profile-from-start", "off"),
        *("--kernel-name-base", "function", "--kernel-name", f"regex:^(?!.*({LEFT_OUT})).*$"),
        *("--launch-count", str(replay.launches), "--force-overwrite", "--export", str(report)),
        *(sys.executable, "-m", MODULE),
        *(str(Path(plan.world.folder) / PLAN), replay.mode),
    ]


def _record(plan: NcuPlan, replay: Replay, report: Path) -> str:
    """Writes a report. Returns why there is none, in one line; else empty."""
    try:
        ended, said = _run(command(plan, replay, report), replay.limit_s)
    except OSError as error:
        return f"ncu did not start: {error}"
    if ended and report.exists():
        return ""
    late = f"it did not end within {replay.limit_s:.0f} s"
    passes = sum("Application replay pass" in line for line in said)
    if passes:
        late += f", which were enough for {passes - 1} passes"
    last = f": {said[-1][:200]}" if said else ""
    return reason(said) or (late if ended is None else f"ncu wrote no report{last}")


def _run(words: list[str], limit_s: float) -> tuple[bool | None, list[str]]:
    """Runs a command, then kills its process group. Returns its success (None: too late) and its printed lines."""
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    said: list[str] = []

    def read(lines: IO[str], started: float) -> None:
        for line in lines:
            if len(said) < MOST_LINES:
                said.append(line.strip())
                print(f"{time.monotonic() - started:.1f} s {line.rstrip()}", flush=True)

    reader = threading.Thread(target=read, args=(process.stdout, time.monotonic()), daemon=True)
    reader.start()
    try:
        ended: bool | None = process.wait(limit_s) == 0
    except subprocess.TimeoutExpired:
        ended = None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    reader.join(1.0)
    return ended, said


def reason(lines: Sequence[str]) -> str:
    """The line of ncu or of a rank that has the reason of a failure; empty if there is none."""
    for begin in (FAILED, "==ERROR==", "==WARNING== No kernels"):
        if found := [line for line in lines if line.startswith(begin)]:
            return found[0].removeprefix("pkb-arena: ").removeprefix("==ERROR== ").removeprefix("==WARNING== ")[:300]
    return ""


def _as_csv(plan: NcuPlan, report: Path) -> tuple[str, str]:
    """(the report as text, why it could not be read)."""
    words = [plan.ncu, "--import", str(report), "--page", "details", "--csv", "--print-units", "base"]
    try:
        done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=IMPORT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"ncu did not read its report: {error}"
    text = done.stdout.decode(errors="replace")
    if done.returncode or len(text) > MOST_TEXT // 2:
        return "", f"ncu did not read its report (status {done.returncode}, {len(text)} characters)"
    return text, ""


def _first(plan: NcuPlan, mode: str) -> None:
    """Runs rank 0. Its peers start while it imports torch."""
    rendezvous = tempfile.mkdtemp(dir=plan.world.folder)
    peers = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peers.connect(f"{plan.world.folder}/{PEERS}")
    peers.send(json.dumps([mode, rendezvous]).encode())
    threading.Thread(target=_watch, args=(peers,), daemon=True).start()
    _rank(plan, mode, 0, rendezvous)


def _watch(peers: socket.socket) -> None:
    """Ends rank 0 when a peer has failed, because rank 0 would wait for the peer."""
    print(peers.recv(ORDER_BYTES).decode(errors="replace"), flush=True)
    os._exit(PEER_FAILED)


def _fork_peers(plan: NcuPlan) -> None:
    """Forks the peers of one rank 0 after another, until this process is killed."""
    import_ahead(plan.world.device_module)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{plan.world.folder}/{PEERS}")
        listener.listen()
        while True:
            first, _ = listener.accept()
            with first:
                if order := first.recv(ORDER_BYTES):
                    mode, rendezvous = json.loads(order)
                    _serve(plan, mode, rendezvous, first)


def _serve(plan: NcuPlan, mode: str, rendezvous: str, first: socket.socket) -> None:
    """Forks the peers of one rank 0. When rank 0 has ended or a peer has failed, kills the rest and returns."""
    left = {forked(partial(_rank, plan, mode, rank, rendezvous)) for rank in range(1, plan.world.setting.world)}
    while not select.select([first], [], [], LOOK_S)[0]:
        ended = [found for pid in left if (found := os.waitpid(pid, os.WNOHANG))[0]]
        left -= {pid for pid, _ in ended}
        if any(status for _, status in ended):
            said = Path(rendezvous, FAILURE)
            with contextlib.suppress(ConnectionError):
                first.send(said.read_bytes() if said.exists() else f"{FAILED}died".encode())
            break
    for pid in left:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _rank(plan: NcuPlan, mode: str, rank: int, rendezvous: str) -> None:
    import torch
    import torch.distributed as dist

    from sandbox.kit.compilers import nvrtc
    from sandbox.rank.profiling.loading import enter_world, failure, loaded_calls

    world = plan.world
    nvrtc.set_timeout(next(each.wait_ms for each in plan.replays if each.mode == mode))
    find_compat()
    torch.set_num_threads(1)
    device: Any = import_module(world.device_module).device(rank)
    try:
        enter_world(world, rank, device, rendezvous, lazy=True)
        _barrier(dist, "joined")  # the rank under ncu may start later than the limit of its peers' waits in a kernel
        calls = loaded_calls(world, rank, device, rotate=False)
        calls.make(world.warm)
        call = calls.prepared()
        device.synchronize()
        _barrier(dist, "before")
        cuda: Any = torch.cuda
        profiler = cuda.cudart() if rank == 0 and device.torch_device.type == "cuda" else None
        if profiler is not None:
            profiler.cudaProfilerStart()
        call()
        device.synchronize()
        if profiler is not None:
            profiler.cudaProfilerStop()
        _barrier(dist, "after")
    except BaseException as error:
        last = failure(error, world, rank).strip().splitlines()[-1:]
        said = f"{FAILED}{rank} failed: {' '.join(last)}"
        if rank:
            Path(rendezvous, FAILURE).write_text(said[: ORDER_BYTES // 4])
        else:
            time.sleep(PEER_FIRST_S)  # if a peer failed first, its failure is printed instead
            print(said, flush=True)
        os._exit(1)
    dist.destroy_process_group()


def _barrier(dist: Any, when: str) -> None:
    """Waits for all ranks through their store, because a barrier of the process group would start NCCL."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"pkb-ncu-{when}-{dist.get_rank()}", "here")
    store.wait([f"pkb-ncu-{when}-{rank}" for rank in range(dist.get_world_size())])


if __name__ == "__main__":
    main()
