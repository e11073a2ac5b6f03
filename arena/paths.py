"""The folders in which pkb-arena keeps its files."""

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sandbox
from arena.errors import FolderUnwritable, MachineError, why

ROOT = Path(sandbox.__file__).resolve().parent.parent
"""The folder that contains the packages. Such processes start in it: Python can import from the working directory
first, and the user's folder may contain a `torch.py`."""


def module_command(module: str, *arguments: str) -> tuple[str, ...]:
    """Returns the command that runs a module with this interpreter."""
    return (sys.executable, "-P", "-m", module, *arguments)


KEPT = frozenset(  # variables that shells and the standard library read
    (  # noqa: SIM905
        "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TEMP TMP TERM COLORTERM NO_COLOR COLUMNS LINES HOSTNAME "
        "VIRTUAL_ENV CONDA_PREFIX CC CXX CFLAGS CXXFLAGS LDFLAGS MAX_JOBS "
        "THUNDERKITTENS_ROOT "
        "DBUS_SESSION_BUS_ADDRESS NVCC"  # systemd creates control groups via the first
    ).split()
)
KEPT_PREFIXES = (
    *("PKB_", "PYTHON", "LC_", "LD_", "XDG_"),
    *("CUDA", "NVIDIA_", "NCCL_", "NVSHMEM_", "CUPY_", "TRITON_", "TORCH", "PYTORCH_", "UCX_", "FI_"),
    *("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_", "GLOO_", "RAY_", "COV", "PYTEST_"),
)
"""Prefixes of variables that configure libraries."""


def module_environment() -> dict[str, str]:
    """Returns the environment for `module_command`: only variables known to be needed, and no key or password."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
    return kept | {"PYTHONPATH": path}


def withhold(name: str) -> None:
    """Removes a variable from `module_environment` from now on, whatever its name is."""
    _names.add(name)


_names: set[str] = set()
_SECRET = re.compile(r"(^|_)(KEY|TOKEN|SECRET|PASS(WORD|WD)?|CREDENTIALS?)(_|$)", re.IGNORECASE)


def _is_kept(name: str) -> bool:
    known = name in KEPT or name.startswith(KEPT_PREFIXES)
    return known and name not in _names and not _SECRET.search(name)


def user() -> str:
    """Returns the name of this machine's user, under which results are voided and kernels locked."""
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in some containers
        return "you"


HOME_VARIABLE = "PKB_ARENA_HOME"
"""Environment variable with one folder for settings, data and state together (portable use, tests)."""
VOIDS = "voids.jsonl"
"""The journal of voided results, beside the index of results."""


class Paths:
    """The three folders, and the paths in them. A folder is created only when a file is written.

    config: settings, the user's themes. data: the user's work: kernels, revisions, journals, the index of results.
    state: caches and other files that may be deleted at any time. Drafts are not there.
    """

    def __init__(self, config: Path, data: Path, state: Path) -> None:
        self.config, self.data, self.state = config, data, state
        self.settings_file = config / "settings.toml"
        self.workspace, self.runs, self.traces = data / "workspace", data / "runs", data / "traces"
        self.profiles, self.duels = data / "profiles", data / "duels"
        self.sweeps, self.imports = data / "sweeps", data / "imports"
        self.database, self.voids = data / "results.sqlite", data / VOIDS
        self.calibrations, self.kernel_cache = state / "calibrations", state / "kernel-cache"
        self.traceback = state / "traceback.txt"
        """The traceback of the last error that no command handled."""

    def all(self) -> dict[str, Path]:
        """Returns every path by its name."""
        names = "workspace runs traces profiles duels sweeps imports voids calibrations traceback"
        found = {"settings": self.settings_file} | {name: getattr(self, name) for name in names.split()}
        return found | {"results": self.database, "kernel cache": self.kernel_cache}


def paths_in(folder: Path) -> Paths:
    """Returns paths with settings, data and state together in one folder."""
    return Paths(config=folder / "config", data=folder / "data", state=folder / "state")


def find_paths() -> Paths:
    """Returns the folders of this environment: PKB_ARENA_HOME, else the XDG folders."""
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return paths_in(Path(home).expanduser().absolute())
    from platformdirs import PlatformDirs

    folders = PlatformDirs("pkb-arena", appauthor=False)
    return Paths(config=folders.user_config_path, data=folders.user_data_path, state=folders.user_state_path)


_OWN = f"make it writable, or set {HOME_VARIABLE} to a folder that is"
FULL, _FULL = "free some space", (errno.ENOSPC, errno.EDQUOT)
NAMED = "name a place that can be written"
"""Advice for a folder whose path the user gave."""


def make_folder(folder: Path, advice: str = _OWN) -> Path:
    """Creates a folder and its missing parents, which only this user can access. advice: for the error.

    Raises:
        FolderUnwritable: it cannot be created or is not writable.
    """
    try:
        for each in reversed([parent for parent in folder.parents if not parent.exists()]):
            each.mkdir(mode=0o700, exist_ok=True)  # `parents=True` ignores the mode
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error, advice) from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise unwritable(folder, PermissionError("not writable"), advice)
    return folder


def require_writable(path: Path) -> None:
    """Checks that a file can be written, before the work whose result goes into it.

    Raises:
        FolderUnwritable: its folder does not exist or is not writable.
    """
    folder = path.absolute().parent
    if not os.access(folder, os.W_OK | os.X_OK):
        reason = "not writable" if os.path.exists(folder) else "there is no such folder"
        raise unwritable(folder, PermissionError(reason), NAMED)


def files_in(folder: Path) -> list[Path]:
    """Returns the journals in a folder (*.jsonl), sorted by name; empty if there is no folder.

    Unlike `Path.glob`, it does not hide that a folder cannot be read.

    Raises:
        MachineError: the folder cannot be read.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        advice = f"make it readable, or set {HOME_VARIABLE} to a folder that is"
        raise MachineError(f"cannot read {folder}: {why(error)}", advice) from None
    return [folder / name for name in sorted(names) if name.endswith(".jsonl")]


def unwritable(folder: Path, error: OSError, advice: str = _OWN) -> FolderUnwritable:
    """Returns the error for a folder that cannot be written, with its path and advice."""
    reason = error.strerror or str(error)
    return FolderUnwritable(f"cannot write to {folder}: {reason}", FULL if error.errno in _FULL else advice)


@contextmanager
def writing(folder: Path, advice: str = _OWN) -> Iterator[None]:
    """Turns an OSError of the block into the FolderUnwritable of `unwritable`."""
    try:
        yield
    except OSError as error:
        raise unwritable(folder, error, advice) from None


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replaces `path` with `data`. An existing file keeps its permissions, a symbolic link stays a link.

    Devices such as /dev/stdout and /dev/null are written to: replacing them would remove them for all processes.

    Raises:
        OSError: nothing was changed.
    """
    with suppress(FileNotFoundError):
        found = path.stat().st_mode
        if not stat.S_ISREG(found) and not stat.S_ISDIR(found):
            with open(path, "wb") as device:
                device.write(data)
            return
        mode = found & 0o7777
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the rename itself must survive a power cut
    finally:
        os.close(folder)


def write_named_file(path: Path, content: str | bytes) -> None:
    """Writes a file at a path that the user gave, as `write_atomically` does. All users can read a new file.

    Raises:
        FolderUnwritable: nothing was changed.
    """
    try:
        write_atomically(path, content.encode() if isinstance(content, str) else content, mode=0o644)
    except OSError as error:
        target = Path(os.path.realpath(path)) if path.is_symlink() else path.absolute()
        raise unwritable(path if path.is_dir() else target.parent, error, NAMED) from None
