"""The files of large arguments and results of calls, which calls and the caller map."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from glob import escape, glob
from itertools import count

from slotwise.model.errors import WorkFolderError
from slotwise.programs.transfer import (
    Handle,
    TransferFolders,
    content,
    discard,
    get,
    loaded,
    pack,
)


class StoredResult:
    """A large value in a file, which is removed when nothing refers to this object any more.

    The future of a result, and the calls that wait for a value, or run with it, refer to it.
    """

    __slots__ = ("__weakref__", "_content", "handle")

    def __init__(self, handle: Handle) -> None:
        self.handle = handle
        self._content: memoryview[int] | None = None
        removes = weakref.finalize(self, _remove, handle.path, os.getpid())
        removes.atexit = False  # The folder is removed then.

    def value(self) -> object:
        """The result. Raises what unpickling raises."""
        if self._content is None:
            return get(self.handle)
        return loaded(self.handle, self._content)

    def hold(self) -> None:
        """Map the file, so that the result stays when the file is removed."""
        if self._content is None:
            self._content = content(self.handle)


class CallFiles:
    """The files of large arguments and results of all calls of a session.

    If the process is killed, the next session of the same user removes them.
    """

    def __init__(self, *, is_local: bool = True) -> None:
        """Calls elsewhere, not in processes that see these files, get pickles."""
        self._is_here = is_local
        self._folders = TransferFolders()
        self._stored: weakref.WeakSet[StoredResult] = weakref.WeakSet()
        self._numbers, self._arguments = count(), count()
        with suppress(WorkFolderError):  # Without a folder, large results travel as pickles.
            self._folders.open("a session")

    @property
    def folders(self) -> tuple[str, ...]:
        """Folders for results, the preferred one first; the last one is on disk."""
        return self._folders.paths

    def new_number(self) -> int:
        """A number for a job of calls: its files begin with it."""
        return next(self._numbers)

    def new_folder(self) -> str:
        """The path of a folder on disk that does not exist yet, removed with the files."""
        return os.path.join(self.folders[-1], f"folder-{self.new_number()}")

    def pack(self, value: object) -> bytes | StoredResult:
        """A value for a call: its pickle, or a file if it is large. Raises like `pickle`."""
        folders = self.folders if self._is_here else ()
        packed = pack(value, folders, f"argument-{next(self._arguments)}")
        return self.keep(packed) if isinstance(packed, Handle) else packed

    def keep(self, handle: Handle) -> StoredResult:
        """Take over the file of a result."""
        stored = StoredResult(handle)
        self._stored.add(stored)
        return stored

    def discard(self, name: str) -> None:
        """Remove the file of an attempt that has failed or was stopped, if there is one."""
        discard(self.folders, name)

    def discard_all(self, prefix: str) -> None:
        """Remove the files whose names begin like this. O(files)."""
        for folder in self.folders:
            for path in glob(f"{escape(os.path.join(folder, prefix))}*"):
                _remove(path, os.getpid())

    def close(self) -> None:
        """Remove all files. Results that a future refers to stay, as mapped memory."""
        for stored in list(self._stored):
            with suppress(OSError):
                stored.hold()
        self._folders.remove()


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:  # A forked child does not own it.
        with suppress(OSError):
            os.unlink(path)
