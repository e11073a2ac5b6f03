"""The commands that let this machine build the walls around kernels; none where only an administrator can."""

import ctypes.util
import shutil
from pathlib import Path

from arena.machine.install_commands import as_root, system_install

_SWITCHES = {
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "65536"),
}
"""Of /proc/sys: what a switch reads when it forbids user namespaces, and what it has to read."""


def isolation_fix(profile: str, switches: Path = Path("/proc/sys")) -> tuple[str, ...]:
    """profile: the jail that is there now. Packages first; where those are there, the system's switches."""
    missing = [] if shutil.which("bwrap") else ["bubblewrap"]
    if ctypes.util.find_library("seccomp") is None:
        missing.append("libseccomp2")
    if missing:
        return system_install(*missing)
    if profile in (
        "root",
        "nested",
    ):  # bubblewrap works; what is missing is another user, or a flag of the container
        return ()
    return tuple(
        as_root(f"sysctl -w {name.replace('/', '.')}={wanted}")
        for name, (forbids, wanted) in _SWITCHES.items()
        if _reads(switches / name) == forbids
    )


def _reads(switch: Path) -> str:
    try:
        return switch.read_text().strip()
    except OSError:
        return ""
