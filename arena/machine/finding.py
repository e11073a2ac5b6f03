"""The doctor's findings, and the commands that fix a machine, for the user to read and then run."""

import ctypes.util
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

import msgspec

from sandbox.machine.backends import PROGRAM


class MachineFinding(msgspec.Struct, frozen=True):
    """The result of one check of the doctor."""

    name: str
    state: str
    """ "ok"; "limited": works with restrictions; "missing": something does not work."""
    found: str
    advice: str = ""
    """What to do; empty if the state is "ok"."""
    fix: tuple[str, ...] = ()
    """Command lines that fix it, for the user to run; empty if it is ok or if no command can fix it."""


def ok(name: str, found: str) -> MachineFinding:
    """Returns a finding that needs no action."""
    return MachineFinding(name, "ok", found)


def limited(name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Returns a finding about something that works with restrictions."""
    return MachineFinding(name, "limited", found, advice, fix)


def missing(name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Returns a finding about something that does not work."""
    return MachineFinding(name, "missing", found, advice, fix)


def limited_if(faulty: bool | str, name: str, found: str, advice: str, *fix: str) -> MachineFinding:
    """Returns a finding that is limited if something is faulty, else ok."""
    return limited(name, found, advice, *fix) if faulty else ok(name, found)


def fix_plan(findings: Sequence[MachineFinding]) -> list[MachineFinding]:
    """Returns the findings that are not ok, with the commands to run; without commands the user has to act as `advice` says.

    Order: first what every run needs, then fixes with commands, then the rest. If several findings need the same
    command, only the first finding has it.
    """
    wanting = [finding for finding in findings if finding.state != "ok"]
    wanting.sort(key=lambda finding: (finding.state != "missing", not finding.fix))
    seen: set[str] = set()
    plan = []
    for finding in wanting:
        commands = tuple(command for command in finding.fix if command not in seen)
        seen.update(commands)
        if finding.fix and not commands:
            continue
        plan.append(msgspec.structs.replace(finding, fix=commands))
    return plan


def as_script(plan: Sequence[MachineFinding]) -> Iterator[str]:
    """Yields the plan as lines of a shell script, with the reasons as comments."""
    if not plan:
        yield "# Nothing is missing here."
        return
    yield "# Nothing of this was done. Read it, and run what you want."
    for finding in plan:
        yield ""
        yield f"# {finding.name}: {one_line(finding.found)}"
        yield from finding.fix or [f"#   by hand: {one_line(finding.advice)}"]


def one_line(text: str) -> str:
    """Joins lines into one, so that text reported by a machine cannot leave its shell comment."""
    return " ".join(text.split())


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


APPARMOR = "kernel/apparmor_restrict_unprivileged_userns"
_SWITCHES = {
    APPARMOR: ("1", "0"),
    "kernel/unprivileged_userns_clone": ("0", "1"),
    "user/max_user_namespaces": ("0", "65536"),
}
"""By file in /proc/sys: the value that forbids user namespaces, and the value that is needed."""


_SECURITY = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"


def isolation_advice(profile: str, switches: Path = Path("/proc/sys"), container: bool | None = None) -> str:
    """Returns what would make the isolation stronger, for this user and this kind of machine, in one sentence.

    profile: name of the jail profile that works now. container: whether this is a container; None: look.
    """
    missing, root = _missing_packages(), os.geteuid() == 0
    container = _in_container() if container is None else container
    if missing:
        return f"install {' and '.join(missing)}"
    if profile == "nested":
        return "start the container with --security-opt systempaths=unconfined"
    if profile == "root":
        other = f"start the container with --user 1000 {_SECURITY}" if container else "start pkb-arena as a normal user"
        return f"{other}: then a user namespace isolates kernels, too"
    if container:
        flags = f"--cap-add SYS_ADMIN {_SECURITY}" if root else _SECURITY
        host = (
            f", and on its host: {' && '.join(fix)}" if not root and (fix := isolation_fix(profile, switches)) else ""
        )
        return f"bubblewrap may not make namespaces: start the container with {flags}{host}"
    if root:
        return "bubblewrap may not make namespaces although you are root: start pkb-arena as a normal user"
    if _reads(switches / APPARMOR) == "1":
        return "AppArmor refuses bubblewrap's user namespaces, as on Ubuntu 24.04: allow them, and in /etc/sysctl.d for good"
    return "allow this user to make user namespaces: bubblewrap needs them"


def _in_container() -> bool:
    files = ("/.dockerenv", "/run/.containerenv", "/var/run/secrets/kubernetes.io")
    return "container" in os.environ or any(map(os.path.exists, files))


def _missing_packages() -> list[str]:
    """The Debian packages that every jail needs and this machine lacks."""
    missing = [] if shutil.which("bwrap") else ["bubblewrap"]
    return missing if ctypes.util.find_library("seccomp") else [*missing, "libseccomp2"]


def isolation_fix(profile: str, switches: Path = Path("/proc/sys")) -> tuple[str, ...]:
    """Returns commands that make jails work: missing packages, else system settings.

    profile: name of the jail profile that works now.
    """
    if missing := _missing_packages():
        return system_install(*missing)
    if os.geteuid() == 0 or profile in ("root", "nested"):  # only another user or a container's flags would help
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
