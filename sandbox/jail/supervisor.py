"""Makes a world's connections for it where the world shares this machine's network (profile landlock).

The system-call filter hands every connect, bind and listen of the world to this process. It copies the address, takes a duplicate
of the socket, decides, and makes the call itself: nothing that the world does meanwhile can change what was decided upon.

- TCP: binds to a loopback address and a port of the kernel's choice; connects to sockets that this world listens on.
- Unix: abstract names only. Landlock's scope, which holds for this process too, keeps those of others out of reach.
"""

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
from pathlib import Path

CONNECT, BIND, LISTEN = {"x86_64": (42, 49, 50), "aarch64": (203, 200, 201)}.get(
    platform.machine(), (-1, -1, -1)
)
"""Numbers of the supervised calls; on other processors none is known, and the profile does not hold."""
OWN_NAMES = b"\0pkb-"
"""How abstract names begin that a world may take: no service of somebody else's can be played."""
MOST_LISTENERS = 512
MOST_ADDRESS = 128
_RECEIVE, _SEND, _IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
PIDFD_GETFD = 438
_libc = ctypes.CDLL(None, use_errno=True)


class Supervisor:
    """Answers the notifications of one filter, one at a time."""

    def __init__(self, notifications: int) -> None:
        """notifications: the filter's listener."""
        self._notifications = notifications
        self._listening: list[socket.socket] = []

    def answer(self) -> None:
        """Waits for one call, and makes or refuses it. A caller that is gone meanwhile is no error."""
        data = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._notifications, _RECEIVE, data)
        except OSError:
            return
        number, thread, _, call, _, _, *arguments = _NOTIFICATION.unpack(data)
        try:
            self._make(number, thread, call, arguments)
            error = 0
        except OSError as refused:
            error = -(refused.errno or errno.EACCES)
        except ValueError:
            error = -errno.EINVAL
        try:
            fcntl.ioctl(self._notifications, _SEND, _RESPONSE.pack(number, 0, error, 0))
        except OSError:
            return

    def _make(self, number: int, thread: int, call: int, arguments: list[int]) -> None:
        address = b"" if call == LISTEN else _copied(thread, arguments[1], arguments[2] & 0xFFFFFFFF)
        with _duplicate(thread, arguments[0] & 0xFFFFFFFF) as sock:
            # Had the caller died before this, its number could stand for another process by now.
            fcntl.ioctl(self._notifications, _IS_VALID, struct.pack("=Q", number))
            if call == CONNECT:
                self._connect(sock, address)
            elif call == BIND:
                self._bind(sock, address)
            elif call == LISTEN:
                self._listen(sock, arguments[1])
            else:
                raise PermissionError(errno.EPERM, "not supervised")

    def _connect(self, sock: socket.socket, address: bytes) -> None:
        if sock.family == socket.AF_UNIX:
            _require(_family(address) == socket.AF_UNIX and len(address) > 3 and address[2] == 0)
        else:
            self._listening = [each for each in self._listening if _accepts(each)]
            _require(_place(sock.family, address) in [_own_place(each) for each in self._listening])
        _done(_libc.connect(sock.fileno(), address, len(address)))

    def _bind(self, sock: socket.socket, address: bytes) -> None:
        if sock.family == socket.AF_UNIX:
            unnamed = len(address) == 2
            _require(_family(address) == socket.AF_UNIX and (unnamed or address[2:].startswith(OWN_NAMES)))
        elif sock.family != socket.AF_NETLINK:
            _, host, port = _place(sock.family, address)
            _require(_is_loopback(host) and port == 0)
        _done(_libc.bind(sock.fileno(), address, len(address)))

    def _listen(self, sock: socket.socket, backlog: int) -> None:
        if sock.family == socket.AF_UNIX:
            sock.listen(min(backlog & 0x7FFFFFFF, socket.SOMAXCONN))
            return
        self._listening = [each for each in self._listening if _accepts(each)]
        _require(_is_loopback(_own_place(sock)[1]) and len(self._listening) < MOST_LISTENERS)
        sock.listen(min(backlog & 0x7FFFFFFF, socket.SOMAXCONN))
        # As long as this duplicate is open nobody else can get the port, so a connection to it stays within the world.
        # (socket.dup would make the original block.)
        self._listening.append(socket.socket(fileno=os.dup(sock.fileno())))


def _require(allowed: bool) -> None:
    if not allowed:
        raise PermissionError(errno.EACCES, "outside this world")


def _done(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _copied(thread: int, address: int, length: int) -> bytes:
    if not 2 <= length <= MOST_ADDRESS:
        raise OSError(errno.EINVAL, "no address")
    with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:
        return os.pread(memory.fileno(), length, address)


def _duplicate(thread: int, descriptor: int) -> socket.socket:
    status = Path(f"/proc/{thread}/status").read_text()
    process = os.pidfd_open(int(status.partition("Tgid:")[2].split()[0]))
    try:
        fd = _libc.syscall(PIDFD_GETFD, process, descriptor, 0)
    finally:
        os.close(process)
    _done(fd)
    try:
        return socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        raise


def _family(address: bytes) -> int:
    return int(struct.unpack_from("=H", address)[0])


def _place(family: int, address: bytes) -> tuple[int, str, int]:
    """(family, host, port) of a TCP address; refuses one of another family than its socket's."""
    at, size = (4, 4) if family == socket.AF_INET else (8, 16)
    _require(
        family in (socket.AF_INET, socket.AF_INET6)
        and _family(address) == family
        and len(address) >= at + size
    )
    host = socket.inet_ntop(family, address[at : at + size])
    return int(family), host, int(struct.unpack_from("!H", address, 2)[0])


def _own_place(sock: socket.socket) -> tuple[int, str, int]:
    host, port, *_ = sock.getsockname()
    return int(sock.family), host, port


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"


def _accepts(sock: socket.socket) -> bool:
    """Whether a socket still listens: shutdown ends that, and gives its port back."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) != 0
