"""A lock file, held with `flock`: the kernel releases it when its process crashes."""

from __future__ import annotations

import fcntl
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

OWNER_BYTES = 1000
"""The name of an owner is truncated to this length."""

LOOKS, LOOK_SECONDS = 25, 0.01
"""Retries for a held lock: a process that only reads the owner also holds it briefly."""


class HeldError(Exception):
    """Another process holds a lock; the text names its owner, or is empty if unknown."""


class FileLock:
    """An exclusive lock on a path. The file holds the name of the owner, for messages.

    The kernel releases the lock when the process ends, however it ends. A file without a lock
    may remain; it has no effect. Two locks of one process also exclude each other. On NFS the
    lock excludes other hosts.
    """

    def __init__(
        self, path: str | Path, owner: str = "", *, create: bool = True, looks: int = LOOKS
    ) -> None:
        """Take the lock; waits at most a quarter of a second, with `looks=1` not at all.

        Raises HeldError if another process holds it, FileNotFoundError if the folder does not
        exist, or if the file does not and `create` is false, and any other OSError if locking
        fails.
        """
        self._path = path
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        while True:
            self._file = os.open(path, flags, 0o600)
            try:
                self._lock(looks)
                if self._is_in_place():
                    os.truncate(self._file, 0)
                    os.pwrite(self._file, owner.encode()[:OWNER_BYTES], 0)
                    return
            except BlockingIOError:
                text = _owner(self._file)
                os.close(self._file)
                raise HeldError(text) from None
            except BaseException:
                os.close(self._file)
                raise
            os.close(self._file)

    def release(self) -> None:
        """Remove the file, if it still exists, and release the lock."""
        with suppress(OSError):
            if self._is_in_place():
                os.unlink(self._path)
        os.close(self._file)

    def _lock(self, looks: int) -> None:
        for look in range(1, looks + 1):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if look == looks:
                    raise
                time.sleep(LOOK_SECONDS)

    def _is_in_place(self) -> bool:
        """Whether the path still names our file: an owner removes it before the release."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def holder(path: str | Path) -> str | None:
    """The name of the owner of the lock on a path; None if no process holds it."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _owner(file)
    finally:
        os.close(file)
    return None


def owner_of(job: str) -> str:
    """The owner name of a job of this process, shown to other processes."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"job {job!r} of process {os.getpid()} on {platform.node()} since {since}"


def _owner(file: int) -> str:
    return os.pread(file, OWNER_BYTES, 0).decode("utf-8", "replace")
