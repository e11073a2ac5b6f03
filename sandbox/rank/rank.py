"""A rank of any world: its place, its device and the problem that is open. Imports torch."""

import faulthandler
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from problems.setting import RankSetting
from problems.specification import load_problem
from sandbox.protocol.frames import Kind
from sandbox.protocol.messages import OpenProblem, Wake
from sandbox.rank.devices.device import Device
from sandbox.rank.problem_code import ProblemCode, leave_groups
from sandbox.rank.serving import Serving, leave


class Rank(Serving):
    """Serves one rank's control socket."""

    def __init__(
        self, rank: int, world: int, sock: socket.socket, report: int, folder: Path, device: Device
    ) -> None:
        """report: descriptor of the page for failure texts; folder: a private directory of this rank."""
        super().__init__(sock, report)
        self.device = device
        self.rank = rank
        self.world = world
        self.folder = folder
        self.code: ProblemCode | None = None
        self.setting: RankSetting | None = None
        self.solution: Callable[..., Any] | None = None
        self.spark = torch.zeros(1, device=device.torch_device)
        self.handlers |= {OpenProblem: self.open, Wake: self.wake}

    def open(self, order: OpenProblem, fds: list[int]) -> None:
        """Opens a problem with a setting in place of the one before (collective)."""
        self.close_problem()
        self.code = ProblemCode(load_problem(Path(order.folder)))
        dtype = getattr(torch, order.dtype)
        self.setting = self.code.setting(order.sizes, order.preset, dtype, self.device.torch_device)
        self.say(Kind.OPENED)

    def close_problem(self) -> None:
        """Lets go of the open problem and of all memory that was taken for it (collective).

        Subclasses have dropped what they hold of it.
        """
        leave_groups()
        if self.code is not None:
            self.code.forget()
        sys.modules.pop("kernel", None)  # a baseline that was loaded as one, with its graphs and buffers
        self.code = self.setting = self.solution = None
        gc.collect()
        self.device.release_all()
        self.device.free_cache()

    def wake(self, order: Wake, fds: list[int]) -> None:
        """Shows that this process, and its context on the GPU, still runs."""
        self.spark.add_(1)
        self.device.synchronize()
        self.say(Kind.AWAKE)


def prepare_process() -> None:
    """Signal handlers and threads of a rank process."""
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    _tell_exits()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)


def _tell_exits() -> None:
    """A rank that ends itself prints where, as faulthandler does for signals."""
    rank = os.getpid()

    def tell(status: int) -> NoReturn:
        if os.getpid() == rank:
            faulthandler.dump_traceback()  # of all threads: only so is the current one named
        leave(status)

    os._exit = tell
