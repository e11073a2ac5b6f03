"""Commands that fix a machine: they install missing software, or change system settings so that jails work."""

import ctypes.util
import os
import re
import shutil
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from sandbox.machine.python_install import PROGRAM

_MANAGERS = {
    "apt-get": "apt-get install -y {}",
    "dnf": "dnf install -y {}",
    "zypper": "zypper install -y {}",
    "pacman": "pacman -S --needed {}",
    "apk": "apk add {}",
}
_OTHER_NAMES = {
    ("dnf", "g++"): "gcc-c++",
    ("zypper", "g++"): "gcc-c++",
    ("pacman", "g++"): "gcc",
    ("dnf", "libseccomp2"): "libseccomp",
    ("pacman", "libseccomp2"): "libseccomp",
    ("apk", "libseccomp2"): "libseccomp",
}
"""Names that other package managers use for Debian packages."""


def as_root(command: str) -> str:
    """Returns the command, with sudo before it unless this user is root."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def system_install(*packages: str, which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...]:
    """Returns the command that installs packages (Debian names); empty without a known package manager."""
    for manager, line in _MANAGERS.items():
        if which(manager):
            names = dict.fromkeys(_OTHER_NAMES.get((manager, package), package) for package in packages)
            return (as_root(line.format(" ".join(names))),)
    return ()


def extra_requirements(extra: str) -> list[str]:
    """Returns the requirements of `pkb-arena[extra]`; empty if it is not installed or has no such extra."""
    try:
        required = metadata.requires(PROGRAM) or ()
    except metadata.PackageNotFoundError:
        return []
    found = []
    for line in required:
        requirement, _, marker = line.partition(";")
        if re.search(rf"""extra\s*==\s*['"]{re.escape(extra)}['"]""", marker):
            found.append(requirement.strip())
    return found


_SWITCHES = {
    "kernel/apparmor_restrict_unprivileged_userns": ("1", "0"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "65536"),
}
"""By file in /proc/sys: the value that forbids user namespaces, and the value that is needed."""


def isolation_fix(profile: str, switches: Path = Path("/proc/sys")) -> tuple[str, ...]:
    """Returns commands that make jails work: missing packages, else system settings.

    profile: name of the jail profile that works now.
    """
    missing = [] if shutil.which("bwrap") else ["bubblewrap"]
    if ctypes.util.find_library("seccomp") is None:
        missing.append("libseccomp2")
    if missing:
        return system_install(*missing)
    if profile in ("root", "nested"):  # bubblewrap works; only another user or a container flag would help
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
