"""A rank of any world: serves its socket, and holds its device and the open problem."""

import faulthandler
import gc
import mmap
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from problems.setting import RankSetting
from problems.specification import load_problem
from sandbox.protocol import frames, messages
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import OpenProblem, Order, Wake
from sandbox.rank.devices.device import Device
from sandbox.rank.kernel_module import stand_in
from sandbox.rank.problem_code import ProblemCode, leave_groups

TEXT_LIMIT = 60_000
leave = os._exit
"""Ends this process at once. If a kernel calls os._exit, the process also prints where (see `_tell_exits`)."""


class Reported(Exception):
    """A failure that was sent to the referee already."""


class Rank:
    """Serves one rank's control socket. Subclasses add handlers of orders, and report exceptions in `blame`."""

    code: ProblemCode
    setting: RankSetting
    """Both exist while a problem is open."""

    def __init__(self, rank: int, world: int, sock: socket.socket, report: int, folder: Path, device: Device) -> None:
        """report: descriptor of the page for failure texts; folder: a private directory of this rank."""
        self.sock = sock
        self.report = mmap.mmap(report, 0)
        self.device = device
        self.rank = rank
        self.world = world
        self.folder = folder
        self.solution: Callable[..., Any] | None = None
        self.spark = torch.zeros(1, device=device.torch_device)
        self.handlers: dict[type[Order[Any]], Callable[[Any, list[int]], None]] = {
            OpenProblem: self.open,
            Wake: self.wake,
        }
        """By type of order. A handler takes the order and the descriptors that came with it."""

    def serve(self) -> None:
        """Answers the referee until it closes the socket."""
        self.say(Kind.READY, os.getpid())
        while True:
            try:
                order, fds = messages.receive(self.sock)
            except (EOFError, ConnectionError):
                leave(0)
            try:
                self.handlers[type(order)](order, fds)
            except Reported:
                pass
            except BaseException as error:
                self.tell(error)

    def say(self, kind: int, value: int = 0) -> None:
        """Sends a bare frame."""
        self.sock.sendall(frames.encode(kind, 0, value))

    def fail(self, kind: int, text: str, line: int = 0) -> None:
        """Writes a text to the report page and sends the kind of failure."""
        data = text.encode("utf-8", "replace")[:TEXT_LIMIT]
        self.report[4 : 4 + len(data)] = data
        self.report[:4] = struct.pack("<I", len(data))
        self.say(kind, line)

    def tell(self, error: BaseException) -> None:
        """Reports any exception of a handler. One whose own methods fail is reported by its name and place."""
        try:
            self.blame(error)
        except BaseException:
            self.blame(stand_in(error))

    def blame(self, error: BaseException) -> None:
        """Reports an exception of a handler."""
        raise NotImplementedError

    def open(self, order: OpenProblem, fds: list[int]) -> None:
        """Opens a problem with a setting in place of the one before (collective)."""
        self.close_problem()
        setting = order.setting
        self.code = ProblemCode(load_problem(Path(setting.problem_dir)))
        self.setting = self.code.setting(setting.sizes, setting.preset, setting.dtype, self.device.torch_device)
        self.say(Kind.OPENED)

    def close_problem(self) -> None:
        """Closes the open problem and frees all memory that was taken for it (collective).

        Subclasses drop their own references to it before.
        """
        leave_groups()
        if hasattr(self, "code"):
            self.code.forget()
        for name in ("code", "setting"):
            vars(self).pop(name, None)
        sys.modules.pop("kernel", None)  # a baseline that was loaded as a kernel, with its graphs and buffers
        self.solution = None
        gc.collect()
        self.device.release_all()
        self.device.free_cache()

    def wake(self, order: Wake, fds: list[int]) -> None:
        """Computes once, to show that this process and its GPU context work."""
        self.spark.add_(1)
        self.device.synchronize()
        self.say(Kind.AWAKE)


def prepare_process() -> None:
    """Sets the signal handlers and threads of a rank process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _tell_exits()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def _tell_exits() -> None:
    """Makes a rank that calls os._exit print where it did so, as faulthandler does for signals."""
    rank = os.getpid()

    def tell(status: int) -> NoReturn:
        if os.getpid() == rank:
            faulthandler.dump_traceback()  # of all threads, because only then the current one is marked
        leave(status)

    os._exit = tell
