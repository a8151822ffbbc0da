"""Notes between tasks that run at the same time: small files."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from slotwise.core.errors import WorkFolderError
from slotwise.core.files import open_regular
from slotwise.jobs.hosts.auth import reach, reader_security
from slotwise.jobs.hosts.files import SECONDS, check_place, refused_errors
from slotwise.jobs.hosts.messages import receive, send
from slotwise.jobs.work_folder import create


def note(folder: Path, name: str, text: str | None = None) -> str | None:
    """Write a note in a folder if `text` is given, and return the text of the note.

    Returns None if the note or the folder does not exist; a folder is not created.
    """
    path = folder / f"note-{name}"
    try:
        if text is not None:
            written = path.with_name(f"{path.name}.written")
            with create(written) as file:
                file.write(text.encode())
            os.replace(written, path)
        with open_regular(path) as found:
            return found.read().decode()
    except FileNotFoundError:
        return None
    except WorkFolderError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise


# Notes at the agent of another host, in the folder of an attempt that runs there.
#
# A request has the folder of the job, the folder of the attempt, the name of the note, and the
# text to write or null. The answer is the text of the note. Without the folder nothing
# is written, so no note outlives its job.


def serve_notes(connected: socket.socket, root: Path) -> None:
    """Answer the requests of one task for notes under `root`, until it disconnects.

    Raises RefusedError, and closes the connection, for an invalid request.
    """
    connected.settimeout(SECONDS)
    with connected, suppress(OSError, EOFError):
        while True:
            with refused_errors():
                folder, attempt, name, text = receive(connected)
                check_place(folder, attempt, name)
                found = note(root / folder / attempt, name, text)
                send(connected, [found])


class RemoteStore:
    """The notes in the folder of an attempt on another host, whose agent has this address."""

    def __init__(self, address: str, folder: Path) -> None:
        """`folder` is the path that it would have on this host."""
        self._address, self._folder = address, folder
        self._socket: socket.socket | None = None

    def note(self, name: str, text: str | None = None) -> str | None:
        """Do the same as `notes.note`. Raises ConnectionError; the call can be retried."""
        request = [self._folder.parent.name, self._folder.name, name, text]
        try:
            if self._socket is None:
                self._socket = reach(self._address, reader_security(), "notes", SECONDS)
            send(self._socket, request)
            found: str | None
            (found,) = receive(self._socket)
        except (OSError, EOFError, ValueError) as error:
            self.close()
            raise ConnectionError(f"{self._address}: {error}") from error
        return found

    def close(self) -> None:
        """Close the connection, if it is open."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
