"""Opening files that users name, without blocking for ever on a pipe or a device."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_to_read(path: str | Path) -> BinaryIO:
    """Open a file for reading. OSError for a device, which may have no end.

    A pipe is read if a process has it open for writing, as a shell does for `<(command)`;
    otherwise it is empty.
    """
    file: BinaryIO = open(path, "rb", opener=_at_once)  # noqa: SIM115
    kind = os.fstat(file.fileno()).st_mode
    if stat.S_ISCHR(kind) or stat.S_ISBLK(kind):
        file.close()
        raise OSError(errno.ENODEV, "It is a device", str(path))
    return file


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file for reading that is neither a link nor a pipe or a device; else OSError."""
    file: BinaryIO = open(path, "rb", opener=_no_link)  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "It is no regular file", str(path))
    return file


def open_to_write(path: str | Path, is_emptied: bool = True) -> BinaryIO:
    """Open a file for writing, truncated if `is_emptied`, otherwise for appending.

    OSError for a pipe that no process has open for reading.
    """
    return open(path, "wb" if is_emptied else "ab", opener=_at_once)


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
