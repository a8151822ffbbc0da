"""Runs and sessions of a user on one machine know of each other by locked files.

Each holds a locked file with the number of its slots in a common folder. The kernel drops the
lock when the process ends, however it ends, so an unlocked file belongs to nobody. See
docs/decisions/0021-sessions-on-one-machine.md.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

FOLDER = "slotwise-sessions"
"""The name of the folder; outside of the user's runtime folder, with the user's number."""

Warn = Callable[[str], None]
"""Warns the user."""


class Other(NamedTuple):
    """Another run or session on this machine."""

    pid: int
    slots: int


class Presence:
    """The entry of a run or session. It has no effect without a usable folder."""

    def __init__(self, file: int = -1, path: Path | None = None) -> None:
        self._file, self._path = file, path

    def close(self) -> None:
        """Remove the entry. Idempotent."""
        file, self._file = self._file, -1  # First, because two threads may close it.
        if self._path is not None and file >= 0:
            with suppress(OSError):
                self._path.unlink()
            os.close(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def enter(slots: int, cores: int, warn: Warn, *, reports: bool = False) -> Presence:
    """Make the entry of a run or session with these slots.

    Warns of others, if all together have more slots than there are processors (`cores`). If
    it `reports` them, also of other processes that fit beside it.
    """
    folder = folder_of_user(warn)
    lock = _lock_of(folder, warn)
    if folder is None or lock < 0:
        return Presence()
    try:
        others = others_in(folder)
        total = slots + sum(other.slots for other in others)
        if others and total > cores:
            listed = ", ".join(
                f"process {other.pid} with {_slots(other.slots)}" for other in others
            )
            warn(
                f"slotwise also runs here in {listed}, and this machine has {cores} cores: with"
                f" the {_slots(slots)} of this one they have {total} in all, so each of them"
                " will be slower; give fewer slots"
            )
        elif reports and (apart := [one for one in others if one.pid != os.getpid()]):
            listed = ", ".join(f"process {one.pid}, uses {_slots(one.slots)}" for one in apart)
            warn(f"another slotwise run of {_user()}, {listed} of this machine")
        return _entry(folder, slots, warn)
    finally:
        os.close(lock)


def folder_of_user(warn: Warn) -> Path | None:
    """The folder with the entries of this user.

    None, with a warning, if it cannot be created, or if other users can change it: another user
    may have created it first.
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
        warn(_unusable(folder, error.strerror or "it cannot be used"))
        return None
    if not stat.S_ISDIR(found.st_mode):
        problem = "it is not a folder"
    elif found.st_uid != user:
        problem = f"it belongs to user {found.st_uid}"
    elif found.st_mode & 0o077:
        problem = "other users may use it; set its mode to 0700"
    else:
        return folder
    warn(_unusable(folder, problem))
    return None


def others_in(folder: Path) -> list[Other]:
    """The present runs and sessions; removes the entries of those that have ended abruptly."""
    found = []
    for path in sorted(folder.glob("*.session")):
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with suppress(ValueError, OSError, TypeError):
                found.append(Other(*map(int, os.pread(file, 100, 0).split())))
        except OSError:
            pass
        else:
            with suppress(OSError):
                path.unlink()
        finally:
            os.close(file)
    return found


def _entry(folder: Path, slots: int, warn: Warn) -> Presence:
    """Create an entry; the caller holds the lock of the folder."""
    try:
        file, name = tempfile.mkstemp(".session", f"{os.getpid()}-", folder)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        warn(_unusable(folder, error.strerror or "no entry can be made"))
        return Presence()
    with suppress(OSError):
        os.pwrite(file, f"{os.getpid()} {slots}\n".encode(), 0)
    return Presence(file, Path(name))


def _lock_of(folder: Path | None, warn: Warn) -> int:
    """A descriptor with the lock of the folder, so that entries are made one by one; or -1."""
    if folder is None:
        return -1
    try:
        file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        warn(_unusable(folder, error.strerror or "it cannot be locked"))
        return -1
    return file


def _user() -> str:
    """The name of the user; the number of one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _slots(count: int) -> str:
    return "1 slot" if count == 1 else f"{count} slots"


def _unusable(folder: Path, problem: str) -> str:
    return f"other runs on this machine are not known: {folder}: {problem}"
