"""Partitions of files of other hosts: agents serve them, and tasks fetch them.

A request names a job's folder, and in it files with a range of their partitions. The answer has
for each file the lengths of the chunks of each partition, and then these chunks. One connection
serves all requests of a task to a host.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import BinaryIO, NamedTuple

from slotwise.programs.hosts.greeting import (
    HELLO_MOST,
    RefusedError,
    Security,
    greet_agent,
    read_frame,
    write_frame,
)
from slotwise.programs.hosts.passing import give_up_after, receive_into, send_from
from slotwise.programs.lost_input import IncompleteFileError
from slotwise.programs.shuffle.partitioned import read_index
from slotwise.programs.work_folder import NAME

SECONDS = 30.0
"""How long the other side may do nothing before the connection is given up."""

PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,100}")
"""A part of a path that is served."""

MISSING = 2**64 - 1
"""Instead of the length of an answer: the file is not there, or is incomplete."""

_NUMBER = Struct("!Q")


class MissingFileError(OSError):
    """A host does not have a file, or only a part of it: the `number`-th that was asked for."""

    def __init__(self, number: int, address: str) -> None:
        super().__init__(f"a file is missing at {address}")
        self.number = number


class Wanted(NamedTuple):
    """Some partitions, from `first` on, of a file in the folder of an attempt."""

    attempt: str
    file: str
    first: int
    partitions: int


def serve_files(connected: socket.socket, root: Path) -> None:
    """Answer the requests of one reader for files under `root`, until it is gone.

    A file that is not there, or is incomplete, is reported as missing.
    """
    give_up_after(connected, SECONDS)
    with connected, suppress(OSError, ValueError, EOFError):
        while True:
            folder, *names = read_frame(connected).decode().split("/")
            if NAME.fullmatch(folder) is None:
                raise ValueError("no folder of a job")
            attempt, file, first, count = names
            if not (PART.fullmatch(attempt) and PART.fullmatch(file)):
                raise ValueError("no file of a task")
            path = root / folder / attempt / file
            try:
                opened = open(path, "rb", opener=_no_link)  # noqa: SIM115
            except OSError:
                connected.sendall(_NUMBER.pack(MISSING))
                continue
            with opened:
                _serve(connected, opened, path, int(first), int(count))


def _serve(
    connected: socket.socket, file: BinaryIO, path: Path, first: int, count: int
) -> None:
    try:
        partitions = read_index(file, path)[first : first + count]
    except IncompleteFileError:
        connected.sendall(_NUMBER.pack(MISSING))
        return
    head = b"".join(
        _NUMBER.pack(number)
        for places in partitions
        for number in (len(places), *(size for _, size in places))
    )
    connected.sendall(_NUMBER.pack(len(head)) + head)
    for start, size in _ranges(place for places in partitions for place in places):
        send_from(connected, file, start, size)


def _ranges(places: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same bytes as few ranges: chunks that follow each other in the file are one."""
    begin = end = 0
    for start, size in places:
        if start != end and end > begin:
            yield begin, end - begin
        if start != end:
            begin = start
        end = start + size
    if end > begin:
        yield begin, end - begin


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


class Fetching:
    """A connection to the agent of another host. Raises OSError if it cannot be used."""

    def __init__(self, address: str, security: Security) -> None:
        host, _, port = address.rpartition(":")
        self._address = address
        connected = socket.create_connection((host, int(port)), SECONDS)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket, _ = greet_agent(connected, security, "reader", {})
            give_up_after(self._socket, SECONDS)
        except BaseException as error:
            connected.close()
            if isinstance(error, RefusedError):
                raise ConnectionError(f"{address}: {error}") from error
            raise

    def ask(self, folder: str, wanted: Wanted) -> None:
        """Ask for partitions of a file; several requests may be sent before `copy`."""
        request = "/".join([folder, *map(str, wanted)]).encode()
        assert len(request) < HELLO_MOST
        write_frame(self._socket, request)

    def copy(self, count: int, out: int) -> list[list[int]] | None:
        """Write the `count` partitions that were asked for next to a descriptor.

        Returns the sizes of the chunks of each. None if the agent does not have the file;
        ConnectionError if it is gone, TimeoutError if it is silent.
        """
        try:
            (length,) = _NUMBER.unpack(self._exactly(_NUMBER.size))
            if length == MISSING:
                return None
            numbers = (number for (number,) in _NUMBER.iter_unpack(self._exactly(length)))
            sizes = [[next(numbers) for _ in range(next(numbers))] for _ in range(count)]
            receive_into(self._socket, out, sum(map(sum, sizes)))
        except BlockingIOError as error:
            raise TimeoutError(f"the agent at {self._address} is silent") from error
        except EOFError as error:
            raise ConnectionResetError(f"the agent at {self._address} is gone") from error
        return sizes

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            got = self._socket.recv_into(left)
            if not got:
                raise EOFError
            left = left[got:]
        return data


def fetch(
    address: str, security: Security, folder: str, wanted: Sequence[Wanted], out: int
) -> Iterator[list[list[int]]]:
    """Write the partitions of these files of one host to a descriptor, one after another.

    Yields the sizes of the chunks of each partition of a file when they are written. Raises
    MissingFileError, and OSError if the host cannot be reached. A few requests are always under
    way, so that small files cost no round trip.
    """
    connection = Fetching(address, security)
    try:
        for one in wanted[:AHEAD]:
            connection.ask(folder, one)
        for number, one in enumerate(wanted):
            sizes = connection.copy(one.partitions, out)
            if sizes is None:
                raise MissingFileError(number, address)
            yield sizes
            if number + AHEAD < len(wanted):
                connection.ask(folder, wanted[number + AHEAD])
    finally:
        connection.close()


AHEAD = 16
"""Requests under way; small enough that they fit into the buffers of sockets."""
