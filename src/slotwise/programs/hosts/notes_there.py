"""Notes at the agent of another host, in the folder of an attempt that runs there.

A request has the folder of the job, that of the attempt, the name of the note, and the text of
one that is to be left, in JSON. The answer is the text of the note that is there. Without the
folder nothing is left, so no note outlives its job.
"""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path

from slotwise.programs.hosts.files import SECONDS, check_place, refusing
from slotwise.programs.hosts.greeting import reach, read_json, write_frame
from slotwise.programs.hosts.notes import note
from slotwise.programs.hosts.security import reader_security


def serve_notes(connected: socket.socket, root: Path) -> None:
    """Answer the requests of one task for notes under `root`, until it is gone.

    RefusedError for a request that is not valid; then the connection is closed.
    """
    connected.settimeout(SECONDS)
    with connected, suppress(OSError, EOFError):
        while True:
            with refusing():
                folder, attempt, name, text = read_json(connected)
                check_place(folder, attempt, name)
                found = note(root / folder / attempt, name, text)
                write_frame(connected, json.dumps(found).encode())


class RemoteStore:
    """The notes in the folder of an attempt on another host, whose agent has this address."""

    def __init__(self, address: str, folder: Path) -> None:
        """`folder` is what it would be on this host."""
        self._address, self._folder = address, folder
        self._socket: socket.socket | None = None

    def note(self, name: str, text: str | None = None) -> str | None:
        """As `notes.note`. ConnectionError if the agent cannot be reached; try it again."""
        request = [self._folder.parent.name, self._folder.name, name, text]
        try:
            if self._socket is None:
                self._socket = reach(self._address, reader_security(), "notes", SECONDS)
            write_frame(self._socket, json.dumps(request).encode())
            found: str | None = read_json(self._socket)
        except (OSError, EOFError) as error:
            self.close()
            raise ConnectionError(f"{self._address}: {error}") from error
        return found

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
