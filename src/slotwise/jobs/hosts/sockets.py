"""Transfers between files and sockets with few copies; addresses and unauthenticated peers.

Without TLS the kernel moves the bytes: `sendfile` from a file, `splice` into one. The socket
blocks, and the kernel measures the time without progress, so a call moves as much as it can.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from threading import Lock
from time import monotonic
from typing import Any, BinaryIO, Generic, TypeVar

BLOCK = 1 << 20
"""Bytes moved at once; with `splice`, the size of the pipe."""

_SECONDS = Struct("ll")
"""A `timeval`."""

Found = TypeVar("Found")


def clear_errors() -> None:
    """Clear OpenSSL's error queue of this thread, as Python does after unknown ciphers.

    With OpenSSL 3.4 or later, a peer that closes may leave an error in it, which Python then
    attributes to the next connection that has nothing to receive (cpython#148594).
    """
    with suppress(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers("unknown")


def repeated(call: Callable[..., Found], *given: Any) -> Found:
    """Call a method of a non-blocking socket, once more after an error; return the result.

    The error may come from another connection (`clear_errors`). A failed connection fails
    again.
    """
    try:
        return call(*given)
    except (BlockingIOError, ssl.SSLError):
        raise
    except OSError:
        clear_errors()
        return call(*given)


def give_up_after(connected: socket.socket, seconds: float) -> None:
    """Let calls fail with an OSError after this time without progress."""
    if isinstance(connected, ssl.SSLSocket):
        connected.settimeout(seconds)
        return
    connected.settimeout(None)
    whole = int(seconds)
    timeval = _SECONDS.pack(whole, int((seconds - whole) * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, timeval)


def send_from(connected: socket.socket, file: BinaryIO, start: int, size: int) -> None:
    """Send a range of a file. Raises EOFError if the file is shorter, and OSError."""
    end = start + size
    if isinstance(connected, ssl.SSLSocket):
        file.seek(start)
    while start < end:
        if isinstance(connected, ssl.SSLSocket):
            data = file.read(min(end - start, BLOCK))
            connected.sendall(data)
            sent = len(data)
        else:
            sent = os.sendfile(connected.fileno(), file.fileno(), start, end - start)
        if not sent:
            raise EOFError
        start += sent


def receive_into(connected: socket.socket, out: int, size: int) -> None:
    """Write the next `size` received bytes to a descriptor. EOFError if the peer closes."""
    if isinstance(connected, ssl.SSLSocket):
        _copy(connected, out, size)
        return
    reader, writer = os.pipe()
    try:
        with suppress(OSError):  # A smaller pipe is slower.
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, BLOCK)
        while size:
            got = os.splice(connected.fileno(), writer, min(size, BLOCK))
            if not got:
                raise EOFError
            size -= got
            while got:
                got -= _drain(reader, out, got)
    finally:
        os.close(reader)
        os.close(writer)


def _drain(reader: int, out: int, size: int) -> int:
    """Write bytes of a pipe to a descriptor and return the number."""
    try:
        return os.splice(reader, out, size)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    # Some file systems do not support splice.
    data = os.read(reader, size)
    _write(out, memoryview(data))
    return len(data)


def _copy(connected: socket.socket, out: int, size: int) -> None:
    buffer = memoryview(bytearray(min(size, BLOCK)))
    while size:
        got = connected.recv_into(buffer[:size])
        if not got:
            raise EOFError
        _write(out, buffer[:got])
        size -= got


def _write(out: int, data: memoryview) -> None:
    while data:
        data = data[os.write(out, data) :]


# IPv4 and IPv6 addresses with ports: "10.0.0.3:41234", "[fe80::3]:41234".

BACKLOG = 1024
"""The number of connections that may wait for `accept`."""


def join_address(host: str, port: int) -> str:
    """Return the string for a host, by name or address, and a port."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_address(address: str) -> tuple[str, int]:
    """Return the host and port of such a string. Raises ValueError for others."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def listening(host: str) -> socket.socket:
    """Return a socket that listens on a free port of a host name or address, or OSError."""
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


# Environment variables that the agent of a host sets for its worker processes.

FOLDER_VARIABLE = "SLOTWISE_FOLDER"
"""The folder for the files of jobs on this host. Without it, all hosts see the same files."""

ADDRESS_VARIABLE = "SLOTWISE_ADDRESS"
"""The address at which the agent of this host serves these files: "10.0.0.3:41234"."""

NAME_VARIABLE = "SLOTWISE_HOST"
"""The name of this host."""

SECURITY_VARIABLE = "SLOTWISE_SECURITY"
"""The credentials of a task for other agents, in JSON: "token" or "tls"."""


def shares_files() -> bool:
    """Return whether all hosts see files that tasks on this host write to local folders."""
    return FOLDER_VARIABLE not in os.environ


def local_folder(work_dir: str) -> Path:
    """Return the folder of a job's intermediate files on this host.

    `work_dir` is the folder on the host of the manager. Both have the same name.
    """
    parent = os.environ.get(FOLDER_VARIABLE)
    return Path(work_dir) if parent is None else Path(parent) / Path(work_dir).name


def local_address() -> str:
    """Return the address of the agent of this host; empty if there is none."""
    return os.environ.get(ADDRESS_VARIABLE, "")


def host_address() -> str:
    """Return the address by which other hosts reach this one; loopback without an agent."""
    address = local_address()
    return split_address(address)[0] if address else "127.0.0.1"


def is_local(address: str) -> bool:
    """Return whether files served at an address are on this host."""
    return address in ("", local_address())


_LACKS_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


def lacking(error: str, host: str) -> str:
    """Return the remedy for an error message about a missing module on a host; else ""."""
    found = _LACKS_MODULE.match(error)
    if found is None:
        return ""
    return (
        f"install {found[1]} on host {host}, in the environment of its Dask worker, or put its"
        " file where all hosts see it and on the sys.path of the program that started the run"
    )


# Peers that have connected and are not authenticated yet: bounds on their number and time.

MAX_UNKNOWN = 256
"""The maximum number of unauthenticated peers; a further one replaces the oldest."""

GREETING_SECONDS = 10.0
"""How long a peer may take to authenticate itself."""

MAX_REFUSALS, REFUSAL_SECONDS = 10, 60.0
"""At most `MAX_REFUSALS` are logged in `REFUSAL_SECONDS`; further ones are counted."""

Peer = TypeVar("Peer")


class UnknownPeers(Generic[Peer]):
    """The peers in authentication, the oldest first. Thread-safe."""

    def __init__(
        self,
        drop: Callable[[Peer], None],
        most: int = MAX_UNKNOWN,
        is_known: Callable[[Peer], bool] = lambda peer: False,
    ) -> None:
        """`drop` ends the connection of a peer. Known peers are dropped last."""
        self._drop, self._most, self._is_known = drop, most, is_known
        self._peers: list[Peer] = []
        self._lock = Lock()

    def add(self, peer: Peer) -> None:
        """Add a peer; if there are too many, drop the oldest."""
        with self._lock:
            if len(self._peers) >= self._most:
                self._drop_oldest()
            self._peers.append(peer)

    def remove(self, peer: Peer) -> bool:
        """Remove a peer that is authenticated or disconnected; False if it was dropped."""
        with self._lock:
            if peer not in self._peers:
                return False
            self._peers.remove(peer)
            return True

    def drop_oldest(self) -> bool:
        """Drop the oldest peer; return False if there is none."""
        with self._lock:
            if self._peers:
                self._drop_oldest()
                return True
            return False

    def _drop_oldest(self) -> None:
        unknown = (peer for peer in self._peers if not self._is_known(peer))
        oldest = next(unknown, self._peers[0])
        self._peers.remove(oldest)
        self._drop(oldest)

    def __iter__(self) -> Iterator[Peer]:
        with self._lock:
            return iter(list(self._peers))

    def __len__(self) -> int:
        return len(self._peers)


class RefusalLog:
    """Logs refused connections on stderr at a bounded rate. Thread-safe."""

    def __init__(self, who: str, clock: Callable[[], float] = monotonic) -> None:
        """`who` begins each line."""
        self._who, self._clock = who, clock
        self._began, self._count = clock(), 0
        self._lock = Lock()

    def add(self, reason: object) -> None:
        """Log a refused connection, or count it if too many were logged recently.

        The next logged line has the number of connections that were only counted.
        """
        with self._lock:
            now, left_out = self._clock(), 0
            if now - self._began >= REFUSAL_SECONDS:
                left_out = max(0, self._count - MAX_REFUSALS)
                self._began, self._count = now, 0
            self._count += 1
            if self._count > MAX_REFUSALS:
                return
        more = f" ({left_out} others before it were not logged)" if left_out else ""
        print(f"{self._who}: a connection was refused: {reason}{more}", file=sys.stderr)
