"""Addresses with ports, of either version of IP: "10.0.0.3:41234", "[fe80::3]:41234"."""

from __future__ import annotations

import socket

BACKLOG = 1024
"""The number of peers that may connect while the listener does not accept."""


def join_address(host: str, port: int) -> str:
    """One text for a host, by name or address, and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """The host and the port of such a text. ValueError for another one."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def listening(host: str) -> socket.socket:
    """A socket that listens on a free port of a host, by name or address. Raises OSError."""
    error: OSError = OSError(f"{host} has no address")
    for family, kind, protocol, _, place in socket.getaddrinfo(
        host, 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    ):
        made = socket.socket(family, kind, protocol)
        try:
            made.bind(place)
            made.listen(BACKLOG)
            return made
        except OSError as problem:
            made.close()
            error = problem
    raise error
