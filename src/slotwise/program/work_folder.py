"""The folder of one job for intermediate files: private, locked, and swept after a crash."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from slotwise.program.lock import FileLock, HeldError, owner_of

NAME = re.compile("slotwise-[0-9a-f]{16}")
"""How such a folder is named; others are never looked into."""

LOCK = "lock"
"""The lock within the folder, which the manager of the job holds."""


def work_folder_name() -> str:
    """A name that no other folder has."""
    return f"slotwise-{uuid4().hex[:16]}"


class WorkFolder:
    """Makes and removes the folder. Its files are unpickled, so nobody else may write them."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: FileLock | None = None

    def open(self, job: str) -> None:
        """Make the folder with mode 0700 and lock it. Raises OSError.

        Folders beside it whose owners are gone are removed first.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sweep(self.path.parent)
        self.path.mkdir(mode=0o700)
        while self._lock is None:
            # Before it is locked, another process that sweeps may take it for a leftover.
            with suppress(FileNotFoundError, HeldError):
                self._lock = FileLock(self.path / LOCK, owner_of(job))
                return
            self.path.mkdir(mode=0o700, exist_ok=True)

    def remove(self) -> None:
        """Remove the folder with all that it holds, as far as that is possible.

        The lock goes last: if we are killed before, the folder is known as a leftover.
        """
        _clear(self.path)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        shutil.rmtree(self.path, ignore_errors=True)


def sweep(root: str | Path) -> None:
    """Remove the work folders of this user under `root` whose owners have ended.

    Whose lock is free has no owner. A folder without a lock is removed only if it is empty.
    What cannot be removed stays.
    """
    with os.scandir(root) as entries:
        folders = [Path(entry.path) for entry in entries if _is_ours(entry)]
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()  # Only if it is empty.
        with suppress(OSError, HeldError):
            with FileLock(folder / LOCK, create=False):
                _clear(folder)
            folder.rmdir()


def _clear(folder: Path) -> None:
    """Remove all in a folder but its lock, as far as that is possible."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name == LOCK:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def private(path: str, flags: int) -> int:
    """An opener for files that only this user may read, whatever the umask says."""
    return os.open(path, flags, 0o600)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        return (
            NAME.fullmatch(entry.name) is not None
            and entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        )
    except OSError:
        return False
