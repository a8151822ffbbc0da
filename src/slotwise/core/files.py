"""Opening files that users name, without blocking forever on a pipe or a device."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from slotwise.core.errors import InputError


def open_to_read(path: str | Path) -> BinaryIO:
    """Open a file for reading. OSError for a device, which may have no end.

    A pipe is read if a process has it open for writing, as a shell does for `<(command)`;
    otherwise it is empty.
    """
    file = _open(path, "rb", _at_once)
    kind = os.fstat(file.fileno()).st_mode
    if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
        file.close()
        raise OSError(errno.ENODEV, "It is a device", str(path))
    return file


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file for reading that is neither a link nor a pipe or a device; else OSError."""
    file = _open(path, "rb", _no_link)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "It is not a regular file", str(path))
    return file


def open_to_write(path: str | Path, is_emptied: bool = True) -> BinaryIO:
    """Open a file for writing, truncated if `is_emptied`, otherwise for appending.

    OSError for a pipe that no process has open for reading.
    """
    return _open(path, "wb" if is_emptied else "ab", _at_once)


def _open(path: str | Path, mode: str, opener: Callable[[str, int], int]) -> BinaryIO:
    """A binary file. OSError also for a path with a null character, which names no file."""
    try:
        return cast("BinaryIO", open(path, mode, opener=opener))
    except ValueError as error:
        raise OSError(errno.EINVAL, str(error), str(path)) from error


def _no_link(path: str, flags: int) -> int:
    return _at_once(path, flags | os.O_NOFOLLOW)


def _at_once(path: str, flags: int) -> int:
    """Open without waiting for the other end of a pipe; later reads and writes do block."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def is_same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths name the same file, or would if it existed."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # One of them does not exist, or is a broken link.
        return os.path.realpath(one) == os.path.realpath(other)
    except ValueError:  # A null character: it names no file.
        return False


# Protects files that slotwise has not written from being overwritten.


def refuse_foreign(path: str | Path, mark: bytes, place: str) -> None:
    """InputError if the file exists, is not empty, and does not begin with our mark.

    Also if it cannot be read. `place` names the file in the message. Devices and pipes are
    accepted: writing to them loses nothing.
    """
    path, head = Path(path), b""
    try:
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(len(mark))
    except OSError as error:
        raise InputError(f"{place}: {error.strerror}; name another file") from error
    if head and head != mark:
        raise InputError(
            f"{place} exists and was not written by slotwise; name another file, or remove it"
        )


# What a file is, by its first bytes, for messages about one kind of file given as another.

KINDS = {
    "a log": rb'\{"is":"Header",',
    "a report": rb"(?i)<!doctype html>",
    "a history": rb"SQLite format 3\0",
    "a workload file": rb"(?s)(.*\n)?\s*\{?\s*\"?slotwise\"?\s*:\s*\d",
}
"""The beginnings of the files that slotwise reads or writes, as patterns."""

HEAD_BYTES = 4096
"""How much of a file is read to recognize it."""


def other_kind(path: str | Path, wanted: str) -> str:
    """What a regular file is by its first bytes; empty if that is unknown or as wanted."""
    try:
        with open_regular(os.path.realpath(path)) as file:
            head = file.read(HEAD_BYTES)
    except (OSError, TypeError, ValueError):  # Not a path, or of no regular file.
        return ""
    found = next((kind for kind, begin in KINDS.items() if re.match(begin, head)), wanted)
    return "" if found == wanted else found


def state_folder() -> Path:
    """The folder of slotwise in the state directory of the user."""
    stated = os.environ.get("XDG_STATE_HOME", "")
    state = stated if os.path.isabs(stated) else os.path.expanduser("~/.local/state")
    return Path(state, "slotwise")
