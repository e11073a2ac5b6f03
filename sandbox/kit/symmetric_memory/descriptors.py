"""Exchanges file descriptors between all ranks, for host or GPU memory."""

import os
import secrets
import socket
import time
from datetime import timedelta
from typing import Any

from sandbox.kit.errors import BarrierTimeout, SymmetricMemoryError, ranks_text


def exchange(rank: int, world: int, store: Any, what: str, mine: int, timeout_s: float) -> list[int]:
    """The descriptors of all ranks, with `mine` in this rank's place. The caller closes the others. Collective.

    store: a torch.distributed store that all ranks share; what: names the exchange, once per store. Raises
    BarrierTimeout with the missing ranks, SymmetricMemoryError if a rank closes its connection without a descriptor.
    """
    deadline = time.monotonic() + timeout_s
    others = [peer for peer in range(world) if peer != rank]
    found = {rank: mine}
    calls: dict[int, socket.socket] = {}
    # An abstract socket leaves no file. Only processes that share the store can read its random name.
    name = "pkb-kit-" + secrets.token_hex(16)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind("\0" + name)
        listener.listen(world)
        store.set(f"{what}/{rank}", name)
        try:
            # A connect returns before it is accepted, so all ranks connect first.
            for peer in others:
                store.wait([f"{what}/{peer}"], timedelta(seconds=_left(deadline)))
                calls[peer] = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                calls[peer].connect("\0" + store.get(f"{what}/{peer}").decode())
            for _ in others:
                listener.settimeout(_left(deadline))
                connection, _ = listener.accept()
                with connection:
                    socket.send_fds(connection, [b"f"], [mine])
            for peer in others:
                calls[peer].settimeout(_left(deadline))
                _, fds, _, _ = socket.recv_fds(calls[peer], 1, 1)
                if not fds:
                    raise SymmetricMemoryError(f"rank {peer} hung up before it shared its memory")
                found[peer] = fds[0]
        except (OSError, RuntimeError) as error:  # a store raises RuntimeError if the key is not set in time
            for peer in found.keys() - {rank}:
                os.close(found[peer])
            if isinstance(error, SymmetricMemoryError):
                raise
            missing = [peer for peer in others if peer not in found]
            raise BarrierTimeout(
                f"{ranks_text(missing)} did not share their memory within {timeout_s:g} s", missing
            ) from None
        finally:
            for connection in calls.values():
                connection.close()
    return [found[peer] for peer in range(world)]


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.001)
