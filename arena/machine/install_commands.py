"""Commands that mend a machine: they install what is missing, or let it build jails for kernels."""

import ctypes.util
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

PROGRAM = "pkb-arena"
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
"""What another manager calls a package of Debian's."""


def as_root(command: str) -> str:
    """The command as this user has to give it: behind sudo, unless it is root who asks."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def system_install(*packages: str, which: Callable[[str], str | None] = shutil.which) -> tuple[str, ...]:
    """The command that installs packages, named as Debian names them; empty where no package manager is known."""
    for manager, line in _MANAGERS.items():
        if which(manager):
            names = dict.fromkeys(_OTHER_NAMES.get((manager, package), package) for package in packages)
            return (as_root(line.format(" ".join(names))),)
    return ()


def python_install(*requirements: str, executable: str = sys.executable, force: bool = False) -> str:
    """The command that adds Python packages to the environment of `executable`, by the tool that made that environment."""
    wanted = shlex.join(requirements)
    if "/pipx/venvs/" in executable:
        return f"pipx inject {'--force ' if force else ''}{PROGRAM} {wanted}"
    if "/uv/tools/" in executable:
        return f"uv pip install --python {shlex.quote(executable)} {'--reinstall ' if force else ''}{wanted}"
    again = "--force-reinstall " if force else ""
    return f"{shlex.quote(executable)} -m pip install {again}{wanted}"


def extra_requirements(extra: str) -> list[str]:
    """What pkb-arena's own package asks for as `pkb-arena[extra]`; empty when it is not installed, or has no such extra."""
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
"""Of /proc/sys: what a switch reads when it forbids user namespaces, and what it has to read."""


def isolation_fix(profile: str, switches: Path = Path("/proc/sys")) -> tuple[str, ...]:
    """profile: the jail that is there now. Packages first; where those are there, the system's switches."""
    missing = [] if shutil.which("bwrap") else ["bubblewrap"]
    if ctypes.util.find_library("seccomp") is None:
        missing.append("libseccomp2")
    if missing:
        return system_install(*missing)
    if profile in ("root", "nested"):  # bubblewrap works; what is missing is another user, or a flag of the container
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
