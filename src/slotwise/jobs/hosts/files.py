"""Parts of files of other hosts: agents serve them, and tasks fetch them.

A request names a folder of a job, a file in it, and a range of the parts of the file. The
answer has the lengths of the blocks of each part, or null if the file is missing or incomplete.
The bytes of the blocks follow it. One connection serves all requests of a task to a host.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from slotwise.core.files import open_regular
from slotwise.jobs.blocks import Index
from slotwise.jobs.execution import IncompleteFileError
from slotwise.jobs.hosts.auth import (
    RefusedError,
    Security,
    SilentError,
    reach,
)
from slotwise.jobs.hosts.messages import MessageError, receive, send
from slotwise.jobs.hosts.sockets import give_up_after, receive_into, send_from
from slotwise.jobs.work_folder import NAME

SECONDS = 30.0
"""How long the other side may be inactive before an agent closes the connection."""

SILENT_SECONDS = 15.0
"""The same for a task; longer than the time after which tasks of a silent host are given up."""

PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,100}")
"""The pattern of a part of a served path."""

UNREACHABLE = {errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN}
"""Errors of a connection whose host is switched off or whose network is down."""


class MissingFilesError(OSError):
    """Requested files of a host are missing or incomplete.

    numbers  their positions among the requested files
    """

    def __init__(self, numbers: Sequence[int], address: str) -> None:
        super().__init__(f"{len(numbers)} files are missing at {address}")
        self.numbers = numbers


class Wanted(NamedTuple):
    """Parts, from `first` on, of a file in the folder of an attempt."""

    attempt: str
    file: str
    first: int
    parts: int


def serve_files(connected: socket.socket, root: Path) -> None:
    """Answer the requests of one reader for files under `root`, until it disconnects.

    An incomplete file is reported as missing. Raises RefusedError, and closes the connection,
    for an invalid request.
    """
    give_up_after(connected, SECONDS)
    with connected, suppress(OSError, EOFError):
        while True:
            with refused_errors():
                folder, attempt, file, first, count = receive(connected)
                check_place(folder, attempt, file)
                if min(first, count) < 0:
                    raise ValueError("not parts of a file")
                path = root / folder / attempt / file
                try:
                    opened = open_regular(path)
                except OSError:
                    send(connected, [None])
                    continue
                with opened:
                    _serve(connected, opened, path, range(first, first + count))


def check_place(folder: str, attempt: str, name: str) -> None:
    """Raise ValueError unless these are names of folders of a job and attempt, and a file."""
    if NAME.fullmatch(folder) is None:
        raise ValueError("not a folder of a job")
    if not (PART.fullmatch(attempt) and PART.fullmatch(name)):
        raise ValueError("not a file of a task")


@contextmanager
def refused_errors() -> Iterator[None]:
    """Turn errors of an invalid request into RefusedError."""
    try:
        yield
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RefusedError(f"invalid request: {error}") from error


def _serve(connected: socket.socket, file: BinaryIO, path: Path, wanted: range) -> None:
    try:
        index = Index(file, path)
        parts = [index.part(number) for number in wanted]
    except IncompleteFileError:
        send(connected, [None])
        return
    places = [list(zip(part[::2], part[1::2], strict=True)) for part in parts]
    sizes = [[end - start for start, end in of_one] for of_one in places]
    send(connected, [sizes])
    for start, end in _ranges(place for of_one in places for place in of_one):
        send_from(connected, file, start, end - start)


def _ranges(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join blocks that are adjacent in the file into ranges."""
    begin = end = 0
    for start, stop in places:
        if start != end and end > begin:
            yield begin, end
        if start != end:
            begin = start
        end = stop
    if end > begin:
        yield begin, end


class Fetcher:
    """A connection to the agent of another host. Raises ConnectionError if it is lost.

    The subclass SilentError is raised if the agent has not answered for `SILENT_SECONDS`.
    """

    def __init__(self, address: str, security: Security) -> None:
        self._address = address
        self._socket = reach(address, security, "reader", SILENT_SECONDS)
        give_up_after(self._socket, SILENT_SECONDS)

    def request(self, folder: str, wanted: Wanted) -> None:
        """Request parts of a file. Several requests may be sent before `copy`."""
        with self._connection_errors():
            send(self._socket, [folder, *wanted])

    def copy(self, count: int, out: int) -> list[list[int]] | None:
        """Write the `count` parts of the next request to a descriptor.

        Returns the sizes of the blocks of each part, or None if the file is missing.
        """
        with self._connection_errors():
            (found,) = receive(self._socket)
            if found is None:
                return None
            sizes: list[list[int]] = [list(map(int, part)) for part in found]
            if len(sizes) != count or min(map(min, filter(None, sizes)), default=0) < 0:
                raise MessageError("other parts than requested")
            receive_into(self._socket, out, sum(map(sum, sizes)))
        return sizes

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    @contextmanager
    def _connection_errors(self) -> Iterator[None]:
        """Turn errors of the connection into ConnectionError; errors of the disk propagate."""
        try:
            yield
        except (BlockingIOError, TimeoutError) as error:
            raise SilentError(f"the agent at {self._address} does not answer") from error
        except (EOFError, ConnectionError, ValueError, TypeError, ssl.SSLError) as error:
            raise ConnectionError(f"lost the agent at {self._address}: {error}") from error
        except OSError as error:
            if error.errno not in UNREACHABLE:
                raise
            raise ConnectionError(f"{self._address} cannot be reached: {error}") from error


def fetch(
    address: str, security: Security, folder: str, wanted: Sequence[Wanted], out: int
) -> Iterator[list[list[int]]]:
    """Write the parts of these files of one host to a descriptor, one after another.

    For each file, yields the sizes of the blocks of each part once they are written; an empty
    list for a missing file. Raises MissingFilesError at the end if files are missing, and
    ConnectionError if the host cannot be reached. Several requests are sent ahead, so that
    small files cost no round trip.
    """
    connection = Fetcher(address, security)
    missing = []
    try:
        for one in wanted[:AHEAD]:
            connection.request(folder, one)
        for number, one in enumerate(wanted):
            sizes = connection.copy(one.parts, out)
            if sizes is None:
                missing.append(number)
            yield sizes or []
            if number + AHEAD < len(wanted):
                connection.request(folder, wanted[number + AHEAD])
    finally:
        connection.close()
    if missing:
        raise MissingFilesError(missing, address)


AHEAD = 16
"""Requests sent ahead; few enough to fit into the buffers of sockets."""
