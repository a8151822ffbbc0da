"""Files of the store with large calls and results, beside its database."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from slotwise.jobs.work_folder import private
from slotwise.service.store.schema import synced

LARGE_BYTES = 256 << 10
"""Bytes beyond which a value is in a file of its own: it is written once, not twice."""


class Blobs:
    """Files that are written once, under new names, before a transaction names them.

    Errors are OSErrors.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, exist_ok=True)

    def write(self, data: bytes) -> str:
        """Write a file and make its contents durable, and its name with `sync`; its name."""
        name = uuid4().hex
        try:
            with open(self.folder / name, "xb", buffering=0, opener=private) as file:
                left = memoryview(data)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
        except OSError as error:
            self.remove([name])
            raise OSError(error.errno, error.strerror, str(self.folder / name)) from error
        return name

    def sync(self) -> None:
        """Make the names of new files durable."""
        synced(self.folder)

    def read(self, value: bytes | str | None) -> bytes | None:
        """The bytes that a row holds, or those of the file that it names."""
        return (self.folder / value).read_bytes() if isinstance(value, str) else value

    def remove(self, names: Collection[str]) -> None:
        """Remove files; what cannot be removed now is removed by `sweep` later."""
        for name in names:
            with suppress(OSError):
                (self.folder / name).unlink()

    def sweep(self, known: Collection[str]) -> None:
        """Remove the files that no transaction has named."""
        self.remove(set(os.listdir(self.folder)).difference(known))
