"""What a kernel would try. Runs inside a profile and prints a JSON object of what worked: nothing of `FORBIDDEN` may.

python selftest.py '{"canary": PATH, "referee": PID, "command": ITS COMMAND LINE, "port": N, "abstract": NAME}'
"""

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORBIDDEN = (
    "reads_home",
    "reads_environment",
    "reads_referee",
    "reaches_network",
    "reaches_abstract_socket",
    "sends_datagrams",
    "writes_system",
    "writes_sysctl",
    "makes_user_namespace",
    "signals_referee",
    "is_root",
    "has_stray_descriptors",
    "opens_vsock",
)
NEEDED = ("has_loopback", "has_shared_memory", "has_memfd", "has_tmp")


def attempts(facts: dict[str, Any]) -> dict[str, Callable[[], bool]]:
    """Name -> does it work? An exception means no."""

    def connects(family: int, address: Any) -> bool:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(0.5)
            sock.connect(address)
        return True

    def loopback() -> bool:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), 1),
        ):
            return True

    def datagram() -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            return sock.sendto(b"x", ("192.0.2.1", 53)) == 1

    def writable(path: str) -> bool:
        file = Path(path)
        file.write_text("x")
        file.unlink()
        return True

    def user_namespace() -> bool:
        return bool(ctypes.CDLL(None, use_errno=True).unshare(0x10000000) == 0)

    def signals() -> bool:
        os.kill(facts["referee"], 0)  # inside a PID namespace another process may have this number
        command = Path(f"/proc/{facts['referee']}/cmdline").read_bytes().decode(errors="replace")
        return bool(command == facts["command"])

    def stray() -> bool:
        # 0-2, and the directory that is being listed
        return len([fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2]) > 1

    def sysctl() -> bool:
        return os.access("/proc/sys/kernel/core_pattern", os.W_OK) or os.access(
            "/proc/sys/kernel/hostname", os.W_OK
        )

    return {
        "reads_home": lambda: "canary" in Path(facts["canary"]).read_text(),
        "reads_environment": lambda: "PKB_CANARY" in str(os.environ) or _environ_leaks(),
        "reads_referee": lambda: (
            len(Path(f"/proc/{facts['referee']}/environ").read_bytes()) > 0 and signals()
        ),
        "reaches_network": lambda: connects(socket.AF_INET, ("127.0.0.1", facts["port"])),
        "reaches_abstract_socket": lambda: connects(socket.AF_UNIX, "\0" + facts["abstract"]),
        "sends_datagrams": datagram,
        "writes_system": lambda: writable("/usr/pkb-canary"),
        "writes_sysctl": sysctl,
        "makes_user_namespace": user_namespace,
        "signals_referee": signals,
        "is_root": lambda: os.getuid() == 0,
        "has_stray_descriptors": stray,
        "opens_vsock": lambda: bool(socket.socket(40, socket.SOCK_STREAM)),
        "has_loopback": loopback,
        "has_shared_memory": lambda: writable("/dev/shm/pkb-probe"),
        "has_memfd": lambda: os.memfd_create("probe") >= 0,
        "has_tmp": lambda: writable("/tmp/pkb-probe"),
    }


def _environ_leaks() -> bool:
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if b"PKB_CANARY" in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def main() -> None:
    """Tries everything and says what worked."""
    found = {}
    for name, attempt in attempts(json.loads(sys.argv[1])).items():
        try:
            found[name] = bool(attempt())
        except Exception:
            found[name] = False
    print(json.dumps(found))


if __name__ == "__main__":
    main()
