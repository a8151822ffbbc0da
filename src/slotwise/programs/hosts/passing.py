"""Bytes between files and sockets, with as few copies as the system allows.

Without TLS the kernel passes them: `sendfile` from a file, `splice` into one. The socket
blocks, and the kernel counts the time without progress, so that a call moves as much as it can.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Any, BinaryIO, TypeVar

BLOCK = 1 << 20
"""Bytes that are passed at once: with `splice`, those that a pipe may hold."""

_SECONDS = Struct("ll")
"""A `timeval`."""

Found = TypeVar("Found")


def clear_errors() -> None:
    """Clear OpenSSL's queue of errors of this thread, as Python does after unknown ciphers.

    With OpenSSL 3.4 or later, a peer that closes may leave an error there, which Python then
    takes for one of the next connection that has nothing to receive (cpython#148594).
    """
    with suppress(ssl.SSLError):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).set_ciphers("unknown")


def repeated(call: Callable[..., Found], *given: Any) -> Found:
    """What a call of a socket that does not block returns; it is repeated after an error.

    The error may be one of another connection (`clear_errors`). A connection that has failed
    fails again.
    """
    try:
        return call(*given)
    except (BlockingIOError, ssl.SSLError):
        raise
    except OSError:
        clear_errors()
        return call(*given)


def give_up_after(connected: socket.socket, seconds: float) -> None:
    """From now on a call fails with an OSError if nothing moves for this time."""
    if isinstance(connected, ssl.SSLSocket):
        connected.settimeout(seconds)
        return
    connected.settimeout(None)
    whole = int(seconds)
    timeval = _SECONDS.pack(whole, int((seconds - whole) * 1e6))
    for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, option, timeval)


def send_from(connected: socket.socket, file: BinaryIO, start: int, size: int) -> None:
    """Send a range of a file. EOFError if the file ends before; OSError as the socket."""
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
    """Write the next bytes that arrive to a descriptor. EOFError if the other side is gone."""
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
    """Write bytes of a pipe to a descriptor; how many."""
    try:
        return os.splice(reader, out, size)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    # Some file systems have no splice.
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
