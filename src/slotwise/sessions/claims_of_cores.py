"""Sessions on one machine tell each other how many processors they use.

Each session has a file in a folder of its user, which holds the number of its slots, and which
it keeps locked. The kernel drops the lock when the process ends, however it ends, so a file
that is not locked belongs to no session. See docs/decisions/0021-sessions-on-one-machine.md.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from slotwise.running import warn_user

FOLDER = "slotwise-sessions"
"""The name of the folder; outside of the user's runtime folder, with the user's number."""


class OtherSession(NamedTuple):
    """A session that is open on this machine."""

    pid: int
    slots: int


class ClaimOfCores:
    """The entry of one session. Without a usable folder, sessions do not know of each other."""

    def __init__(self, file: int = -1, path: Path | None = None) -> None:
        self._file, self._path = file, path

    def update(self, slots: int) -> None:
        """The session has another number of slots now."""
        if self._file >= 0:
            with suppress(OSError):
                os.pwrite(self._file, f"{os.getpid():10} {slots:10}\n".encode(), 0)

    def close(self) -> None:
        """Remove the entry. Idempotent."""
        file, self._file = self._file, -1  # First: two threads may close it.
        if self._path is not None and file >= 0:
            with suppress(OSError):
                self._path.unlink()
            os.close(file)


def claim_cores(wanted: int | None, cores: int) -> tuple[int, ClaimOfCores]:
    """The number of slots of a new session, and its entry. Warns of other sessions.

    It is the wanted number if one is given, with a warning if all sessions together have more
    slots than there are cores. Otherwise it is that of the cores that the others leave, and at
    least 1.
    """
    folder = folder_of_user()
    lock = _lock_of(folder)
    if folder is None or lock < 0:
        return cores if wanted is None else wanted, ClaimOfCores()
    try:
        others = other_sessions(folder)
        free = cores - sum(other.slots for other in others)
        slots = max(1, free) if wanted is None else wanted
        _warn(others, wanted, slots, cores)
        return slots, _enter(folder, slots)
    finally:
        os.close(lock)


def folder_of_user() -> Path | None:
    """The folder with the entries of this user's sessions.

    None, with a warning, if it cannot be made, or if it is not a folder that only this user can
    change: another user could have made it first.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    user = os.getuid()
    if runtime and os.path.isdir(runtime):
        folder = Path(runtime, FOLDER)
    else:
        folder = Path(tempfile.gettempdir(), f"{FOLDER}-{user}")
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = os.lstat(folder)
    except OSError as error:
        _warn_of(folder, error.strerror or "it cannot be used")
        return None
    if not stat.S_ISDIR(found.st_mode):
        problem = "it is not a folder"
    elif found.st_uid != user:
        problem = f"it belongs to user {found.st_uid}"
    elif found.st_mode & 0o077:
        problem = "other users may use it; set its mode to 0700"
    else:
        return folder
    _warn_of(folder, problem)
    return None


def other_sessions(folder: Path) -> list[OtherSession]:
    """The sessions that are open; removes the entries of those that have ended abruptly."""
    found = []
    for path in sorted(folder.glob("*.session")):
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(ValueError, OSError):
                found.append(OtherSession(*map(int, os.pread(file, 100, 0).split())))
        except OSError:
            pass
        else:
            with suppress(OSError):
                path.unlink()
        finally:
            os.close(file)
    return found


def _enter(folder: Path, slots: int) -> ClaimOfCores:
    """Make an entry; the folder is locked."""
    try:
        file, name = tempfile.mkstemp(".session", f"{os.getpid()}-", folder)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        _warn_of(folder, error.strerror or "no entry can be made")
        return ClaimOfCores()
    claim = ClaimOfCores(file, Path(name))
    claim.update(slots)
    return claim


def _lock_of(folder: Path | None) -> int:
    """A descriptor that holds the lock of the folder, so that sessions open one by one."""
    if folder is None:
        return -1
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        _warn_of(folder, error.strerror or "it cannot be locked")
        return -1
    return file


def _warn(others: list[OtherSession], wanted: int | None, slots: int, cores: int) -> None:
    taken = sum(other.slots for other in others)
    if not others or (wanted is not None and taken + wanted <= cores):
        return
    listed = ", ".join(f"process {other.pid} with {_slots(other.slots)}" for other in others)
    of_cores = f"this machine has {cores} cores"
    if wanted is None:
        text = f"other sessions run here ({listed}), and {of_cores}: this one takes"
        text += f" {_slots(slots)}; give slots for another number"
    else:
        text = f"other sessions run here ({listed}), and {of_cores}: with the {_slots(slots)}"
        text += f" of this one they have {taken + slots} in all, so each of them will be slower"
    warn_user(text)


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _warn_of(folder: Path, problem: str) -> None:
    warn_user(
        f"sessions on this machine cannot tell each other their slots: {folder}: {problem}"
    )
