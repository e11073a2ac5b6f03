"""Forks worlds from a process that has imported torch: a world takes 0.1 s instead of 2 s.

    python -m sandbox.rank.fork_server SOCKET DEVICES     SOCKET: a descriptor; DEVICES: the module of the ranks' device

Orders come through the socket (sandbox/protocol/launch_plan.py).

For each order it forks a process that enters the world's control group and joins its jail. This must happen outside of the
world's PID namespace. That process then forks the launcher into the namespace, and stays until the referee kills it. No kernel
runs in the fork server, and worlds cannot send it anything.
"""

import contextlib
import os
import signal
import socket
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

from sandbox.jail import joining
from sandbox.kit.symmetric_memory.host_signals import host_signals
from sandbox.machine.processes import die_with_parent
from sandbox.protocol import launch_plan
from sandbox.protocol.launch_plan import MOST_DESCRIPTORS, MOST_ORDER_BYTES, ForkOrder
from sandbox.rank.launcher import import_ahead, launch

FAILED = 71
REFUSING_SECONDS = 2.0


def serve(orders: socket.socket, device_module: str) -> None:
    """Serves orders until the referee is gone. device_module: the module of the ranks' device."""
    die_with_parent()
    try:
        with ThreadPoolExecutor(1) as beside:  # its thread ends before the first fork
            loaded = beside.submit(_load_signals)
            import_ahead(device_module)
            loaded.result()
    except Exception:
        _refuse(orders, traceback.format_exc())
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # this process never reaps worlds
    server = os.getpid()
    while True:
        data, fds, _, _ = socket.recv_fds(orders, MOST_ORDER_BYTES, MOST_DESCRIPTORS)
        if not data:
            return
        order = launch_plan.decode_order(data).with_descriptors(fds)
        try:
            if not (pid := os.fork()):
                die_with_parent(server)
                _close_all_but({0, 1, 2, *fds})
                _become_world(order, fds)
            _tell(order.born, pid)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.write(order.plan.pipes[0], f"the world could not be forked: {error}\n".encode())
        for fd in fds:
            os.close(fd)


def _load_signals() -> None:
    """Loads the C library of symmetric memory for all worlds. Every kernel text would compile it anew, in 0.3 s."""
    with tempfile.TemporaryDirectory() as own:  # kernels can write to other caches
        os.environ["PKB_KERNEL_CACHE"] = own
        host_signals()


def _refuse(orders: socket.socket, why: str) -> None:
    """Answers all orders that come soon with the reason why no world can be forked. The referee then starts a new server."""
    orders.settimeout(REFUSING_SECONDS)
    with contextlib.suppress(TimeoutError):
        while (received := socket.recv_fds(orders, MOST_ORDER_BYTES, MOST_DESCRIPTORS))[0]:
            data, fds, *_ = received
            with contextlib.suppress(OSError):
                os.write(launch_plan.decode_order(data).with_descriptors(fds).plan.pipes[0], why.encode())
            for fd in fds:
                os.close(fd)


def _tell(born: int, pid: int) -> None:
    """Sends the referee a process id and its pidfd."""
    handle = os.pidfd_open(pid)
    try:
        with socket.socket(fileno=os.dup(born)) as wire:
            socket.send_fds(wire, [str(pid).encode()], [handle])
    finally:
        os.close(handle)


def _become_world(order: ForkOrder, fds: list[int]) -> NoReturn:
    """Enters the control group and the jail, and forks the launcher into them."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(order.born)
        _talk_through(order.plan.pipes[0])
        if order.group:
            (Path(order.group) / "cgroup.procs").write_text("0")
        inside: tuple[int, int] | None = None
        if order.jail is not None:
            if not os.read(order.jail.ready, 1):
                raise joining.NotInside("bubblewrap ended before it started a process inside")
            os.close(order.jail.ready)
            inside = joining.join(order.jail.builder)
        if not (child := os.fork()):
            _launch(order, inside)
        for fd in set(fds) - {order.born}:
            with contextlib.suppress(OSError):  # one of them is closed
                os.close(fd)
        _talk_through(os.open(os.devnull, os.O_RDWR))  # keeps no end of the pipe, so that the world can close it
        os.waitpid(child, 0)
        while True:  # keeps the process id in use
            signal.pause()
    except BaseException as error:
        _say_why(error)
        os._exit(FAILED)


def _launch(order: ForkOrder, inside: tuple[int, int] | None) -> NoReturn:
    """Restricts this process and runs the launcher in it."""
    os.setsid()
    os.environ.clear()
    os.environ.update(order.environment)
    tempfile.tempdir = None  # an import may have set it
    os.chdir(order.plan.folder)
    if inside is not None:
        joining.restrict(*inside, order.filter)
    elif order.filter:
        joining.install(order.filter)
    die_with_parent()  # again, because a change of the user clears the setting
    launch(order.plan)
    sys.stdout.flush()
    os._exit(0)


def _say_why(error: BaseException) -> None:
    """Prints the reason to the pipe of the world's first rank."""
    if isinstance(error, joining.NotInside):
        print(f"the world could not be isolated: {error}", file=sys.stderr)
    else:
        traceback.print_exc()


def _close_all_but(kept: set[int]) -> None:
    """Closes all other descriptors."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # the descriptor of the listing
                os.close(int(name))


def _talk_through(pipe: int) -> None:
    os.dup2(pipe, 1)
    os.dup2(pipe, 2)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
