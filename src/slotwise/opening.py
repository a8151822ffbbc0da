"""Opening files that users name, without waiting for ever for what may never come."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_to_read(path: str | Path) -> BinaryIO:
    """Open a file for reading. OSError for a device, which may have no end.

    A pipe is read if somebody has it open to write, as a shell has for `<(command)`; else it is
    empty.
    """
    file: BinaryIO = open(path, "rb", opener=_at_once)  # noqa: SIM115
    kind = os.fstat(file.fileno()).st_mode
    if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
        file.close()
        raise OSError(errno.ENODEV, "It is a device", str(path))
    return file


def open_to_write(path: str | Path, is_emptied: bool = True) -> BinaryIO:
    """Open a file for writing, empty or at its end.

    OSError for a pipe that nobody has open to read.
    """
    return open(path, "wb" if is_emptied else "ab", opener=_at_once)


def _at_once(path: str, flags: int) -> int:
    """Wait for nobody to open the other end of a pipe, but for what comes through it."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


def is_same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths lead to one file, or would if it were there."""
    try:
        return os.path.samefile(one, other)
    except OSError:  # One of them is not there, or leads nowhere.
        return os.path.realpath(one) == os.path.realpath(other)
