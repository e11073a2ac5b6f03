"""The environment of a profile: a folder, a jail, the GPUs, and one process that starts all others."""

import contextlib
import os
import secrets
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from sandbox.jail import kernel_cache
from sandbox.jail import memory as bounds
from sandbox.jail.choice import Jail
from sandbox.jail.profiles import python_module, python_path
from sandbox.machine.devices.kind import DeviceKind
from sandbox.machine.locked_folder import WORLD, LockedFolder
from sandbox.machine.placement import cores_of
from sandbox.machine.processes import kill_tree
from sandbox.protocol.events import Setting
from sandbox.protocol.kernel_files import Kernel, write_read_only
from sandbox.protocol.profile import ProfilePlan
from sandbox.worlds.first_process import FILES, SHOWN

END_S = 10.0
OUTPUT_BYTES = 64 << 10
WARM, CALLS = 3, 5


class ProfileFailed(Exception):
    """There is no report. The message has the reason and, if it helps, the last printed line."""


class Place:
    """A context manager. On exit it kills every process that it started and removes everything that it made."""

    def __init__(
        self, setting: Setting, kernel: Kernel, kind: DeviceKind, jail: Jail, readable: tuple[Path, ...]
    ) -> None:
        """readable: the folder of a user's own problem. Raises ProfileFailed if there are too few GPUs."""
        self.gpus = kind.gpus(setting.world)
        if kind.on_gpus and len(self.gpus) < setting.world:
            raise ProfileFailed(f"{setting.world} ranks need {setting.world} GPUs; this machine has {len(self.gpus)}")
        self._setting, self._kernel, self._kind, self._jail, self._readable = setting, kernel, kind, jail, readable
        self._after = contextlib.ExitStack()
        self._said: IO[bytes] | None = None

    def __enter__(self) -> "Place":
        folder = LockedFolder(WORLD)
        self._after.callback(folder.remove)
        self._path = folder.path
        self._files = folder.path / FILES
        if self._kernel.files:
            self._files.mkdir()
            write_read_only(self._files, self._kernel)
            self._readable = (*self._readable, self._files)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        self._after.close()

    def pipe(self) -> tuple[int, int]:
        """(the end to read from, the end for the world). The first is closed with the context."""
        ours, theirs = os.pipe()
        self._after.callback(os.close, ours)
        return ours, theirs

    def plan(self, kernel_name: str) -> ProfilePlan:
        """The plan of the ranks, without descriptors."""
        world = self._setting.world
        return ProfilePlan(
            setting=self._setting,
            source=self._kernel.source,
            kernel_name=kernel_name,
            kernel_folder=str(self._files) if self._kernel.files else "",
            device_module=self._kind.rank_module,
            folder=str(self._jail.profile.inside(self._path)),
            cores=[list(cores_of(rank, world, self.gpus)) for rank in range(world)],
            reports=[],
            controls=[],
            epoch_ns=time.time_ns(),
            seed=secrets.randbits(60),
            warm=WARM,
            calls=CALLS,
        )

    def start(self, module: str, plan: bytes, fds: Sequence[int]) -> None:
        """Starts the module in the jail with the plan as its argument. fds: it inherits them; they are closed here."""
        compiled = self._path / SHOWN
        compiled.mkdir(mode=0o755)
        kernel_cache.show(kernel_cache.SHARED, compiled)
        readable = (*self._readable, compiled)
        extra = {"PYTHONPATH": python_path(), "PKB_KERNEL_CACHE": str(compiled)} | self._kind.environment(self.gpus)
        argv = python_module(module, plan.decode())
        wrapped = self._jail.wrap(argv, self._path, extra, readable, self._kind.device_files(self.gpus))
        said = self._after.enter_context(open(self._path.with_suffix(".out"), "w+b"))  # noqa: SIM115
        self._said = said
        self._after.callback(Path(said.name).unlink)
        limit = bounds.limit_bytes(self._setting.world * self._kind.host_bytes)
        bound = bounds.Bound(self._jail.profile, self._path, limit)
        self._after.callback(bound.close)
        process = subprocess.Popen(
            bound.starts(wrapped.argv),
            pass_fds=[*fds, *wrapped.fds],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=wrapped.env,
            cwd=self._path,
            start_new_session=True,
        )
        self._after.callback(_end, process)
        for fd in fds:
            os.close(fd)
        wrapped.close()

    def printed(self) -> list[str]:
        """The last lines that the world has printed."""
        if self._said is None:
            return []
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - OUTPUT_BYTES))
        return self._said.read().decode(errors="replace").strip().splitlines()


def _end(process: "subprocess.Popen[bytes]") -> None:
    kill_tree(process.pid)
    # Freeing a GPU's memory takes a while, and the profile does not need it.
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(END_S)
