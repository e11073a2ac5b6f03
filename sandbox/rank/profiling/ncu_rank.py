"""The ranks of a world whose rank 0 is under Nsight Compute: warm calls, then the one that is profiled.

    ncu ... python -m sandbox.rank.profiling.ncu_rank PLAN MODE      rank 0
    python -m sandbox.rank.profiling.ncu_rank PLAN                   forks the other ranks whenever rank 0 has started

Rank 0 starts again for every pass of an application replay. The process that forks its peers has imported torch once.
"""

import contextlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from sandbox.machine.processes import die_with_parent
from sandbox.protocol.profile import NcuPlan, decode_ncu_plan
from sandbox.rank.launcher import find_compat, import_ahead
from sandbox.rank.profiling.ncu import FAILED, PEERS

PEER_FAILED = 3
ORDER_BYTES = 4096
FAILURE = "failure"
"""The file to which a peer writes the reason of its failure."""
PEER_FIRST_S, LOOK_S = 0.5, 0.02


def main() -> None:
    """Runs rank 0, or the process that forks the others."""
    die_with_parent()
    plan = decode_ncu_plan(Path(sys.argv[1]).read_bytes())
    if len(sys.argv) > 2:
        _first(plan, sys.argv[2])
    else:
        _fork_peers(plan)


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
    server = os.getpid()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(f"{plan.world.folder}/{PEERS}")
        listener.listen()
        while True:
            first, _ = listener.accept()
            with first:
                if order := first.recv(ORDER_BYTES):
                    mode, rendezvous = json.loads(order)
                    _serve(plan, mode, rendezvous, first, server)


def _serve(plan: NcuPlan, mode: str, rendezvous: str, first: socket.socket, server: int) -> None:
    """Forks the peers of one rank 0. When rank 0 has ended or a peer has failed, kills the rest and returns."""
    left = set()
    for rank in range(1, plan.world.setting.world):
        pid = os.fork()
        if pid == 0:
            die_with_parent(server)
            _rank(plan, mode, rank, rendezvous)
            os._exit(0)
        left.add(pid)
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
