"""The folder of a job's intermediate files: private, locked, and removed after a crash."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import platform
import re
import shutil
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self
from uuid import uuid4

from slotwise.core.errors import InputError, SlotwiseWarning, WorkFolderError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


NAME = re.compile("slotwise-[0-9a-f]{16}")
"""The pattern of folder names; other folders are never touched."""

LOCK = "lock"
"""The name of the lock file in the folder; the manager of the job holds the lock."""

KEPT = "kept"
"""A file in a folder that outlives its job: the path of a file; while it exists, both stay."""

STAGED = "staged"
"""A link in such a folder: to the folder of the same name with parts of the output."""

OF_KEPT = (LOCK, KEPT, STAGED)
"""What such a folder has besides output."""


OF_FOLDER = frozenset(
    {
        errno.EACCES,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.ENOENT,
        errno.ENOSPC,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
        errno.ESTALE,
    }
)
"""Errors of a folder or its file system, and not of connections or the process."""

WRITE_BYTES = 1 << 17
"""The size of the buffer of a file that is written."""


@contextmanager
def work_folder_errors(folder: str | Path) -> Iterator[None]:
    """Turn errors of files in a folder of intermediate files into WorkFolderError.

    It is for code that only reads or writes these files, not for code of users.
    """
    try:
        yield
    except OSError as error:
        if error.errno in OF_FOLDER:
            raise WorkFolderError.of(str(folder), error) from error
        raise


@contextmanager
def named_file_errors(folder: str | Path) -> Iterator[None]:
    """Turn errors that name a file in the folder into WorkFolderError, also from user code."""
    try:
        yield
    except OSError as error:
        name = error.filename
        if isinstance(name, str | os.PathLike) and Path(folder) in (
            p := Path(name),
            *p.parents,
        ):
            raise WorkFolderError.of(str(folder), error) from error
        raise


class KeptFile(io.FileIO):
    """A file of intermediate data, private to the user. Errors are WorkFolderErrors."""

    def __init__(self, path: str | Path) -> None:
        with work_folder_errors(os.path.dirname(path)):
            super().__init__(path, "w", opener=private)

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of these bytes and return the number."""
        try:
            return super().write(data)
        except OSError as error:
            raise WorkFolderError.of(os.path.dirname(str(self.name)), error) from error


def create(path: str | Path) -> BinaryIO:
    """Create a file of intermediate data: a buffered `KeptFile`."""
    return io.BufferedWriter(KeptFile(path), WRITE_BYTES)


def temporary_folder() -> str:
    """Return the folder for temporary files. Raises InputError if there is none.

    Warns if TMPDIR names another folder, in which no file can be written.
    """
    import tempfile

    try:
        found = tempfile.gettempdir()
    except FileNotFoundError as error:
        raise InputError(
            f"no folder can hold temporary files: {error.strerror or error}; free space, or"
            " set TMPDIR to a writable folder"
        ) from error
    stated = os.environ.get("TMPDIR")
    if stated and os.path.abspath(stated) != os.path.abspath(found):
        _warn_of(stated, found)
    return found


@cache
def _warn_of(stated: str, found: str) -> None:
    """Warn once if no file can be written in the stated folder."""
    import tempfile
    import warnings

    try:
        with tempfile.TemporaryFile(dir=stated) as file:
            file.write(b"-")
    except OSError as error:
        warnings.warn(
            f"TMPDIR is {stated!r}, where no file can be written: {error.strerror or error};"
            f" intermediate files go to {found}; correct it, or leave it out",
            SlotwiseWarning,
            stacklevel=3,
        )


def work_folder_name() -> str:
    """Return a new unique folder name."""
    return f"slotwise-{uuid4().hex[:16]}"


class WorkFolder:
    """Creates and removes the folder. Its files are unpickled, so only this user may write."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock: FileLock | None = None

    def open(self, job: str) -> None:
        """Create the folder with mode 0700 and lock it. Raises OSError.

        First removes the folders next to it whose owners have ended. A folder that `adopt` has
        locked is used as it is.
        """
        if self._lock is not None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        sweep(self.path.parent)
        self.path.mkdir(mode=0o700)
        while self._lock is None:
            # Until it is locked, a sweep by another process may remove it.
            with suppress(FileNotFoundError, HeldError):
                self._lock = FileLock(self.path / LOCK, owner_of(job))
                return
            self.path.mkdir(mode=0o700, exist_ok=True)

    def adopt(self, job: str, names: Collection[str]) -> None:
        """Lock a folder that was left, or whose owner was killed. Raises OSError, HeldError.

        Only the contents with these names are kept.
        """
        self._lock = FileLock(self.path / LOCK, owner_of(job), create=False)
        _clear(self.path, {*names, *OF_KEPT})

    def keep_while(self, path: str | Path, staged: str = "") -> None:
        """Let the folder outlive its job while a file exists. Raises OSError.

        `staged` is a folder of the same name elsewhere, which is removed with it.
        """
        if staged:
            with suppress(FileExistsError):
                (self.path / STAGED).symlink_to(staged)
        partial = self.path / f"{KEPT}-partial"
        partial.write_text(str(path), "utf-8", "surrogateescape")
        os.replace(partial, self.path / KEPT)

    def leave(self, names: Collection[str]) -> None:
        """Unlock the folder, if it is locked, and keep only the contents with these names."""
        if self._lock is not None:
            _clear(self.path, {*names, *OF_KEPT})
            self._lock.leave()
            self._lock = None

    def remove(self) -> None:
        """Remove the folder and its contents; errors are ignored.

        The lock is removed last, so that a sweep finds the folder if the process is killed.
        """
        _clear(self.path)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        shutil.rmtree(self.path, ignore_errors=True)


def sweep(root: str | Path, tries: int = 1) -> None:
    """Remove the work folders of this user under `root` whose owners have ended.

    A folder whose lock is free has no owner. A folder that is kept stays while the file exists
    for which it is. A folder without a lock is removed only if it is empty. Errors of removal
    are ignored. By default this does not wait for locks, since most owners live long: a folder
    whose lock another process holds briefly is left to the next sweep. With more `tries` it
    waits a little for each lock, because a process that has just been started holds the locks
    of its parent for a moment.
    """
    with os.scandir(root) as entries:
        folders = [Path(entry.path) for entry in entries if _is_ours(entry)]
    for folder in folders:
        if not _stays(folder):
            _remove_left(folder, tries)


def is_private(folder: str | Path) -> bool:
    """Whether this is a work folder of this user, in which nobody else may write."""
    with suppress(OSError):
        status = os.lstat(folder)
        is_own = status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) == 0o700
        is_folder = stat.S_ISDIR(status.st_mode)
        return is_own and is_folder and NAME.fullmatch(Path(folder).name) is not None
    return False


def remove_kept(folder: str | Path) -> None:
    """Remove a work folder that was kept, unless a process uses it; errors are ignored."""
    if is_private(folder) and (Path(folder) / KEPT).is_file():
        _remove_left(Path(folder), TRIES)


def _stays(folder: Path) -> bool:
    """Whether a folder is kept, and that for which it is still exists."""
    with suppress(OSError):
        owner = (folder / KEPT).read_text("utf-8", "surrogateescape")
        return os.path.isfile(owner)
    return False


def _remove_left(folder: Path, tries: int) -> None:
    with suppress(OSError):
        folder.rmdir()  # Only if it is empty.
    with suppress(OSError, HeldError):
        with FileLock(folder / LOCK, create=False, tries=tries):
            _remove_staged(folder)
            _clear(folder)
        folder.rmdir()


def _remove_staged(folder: Path) -> None:
    """Remove the parts of the output of a job, and the folders around them if empty."""
    with suppress(OSError):
        staged = (folder / STAGED).readlink()
        if staged.name == folder.name:
            shutil.rmtree(staged, ignore_errors=True)
            staged.parent.rmdir()
            staged.parent.parent.rmdir()


def _clear(folder: Path, names: Collection[str] = (LOCK,)) -> None:
    """Remove everything in a folder except these names, its lock by default.

    Errors are ignored.
    """
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name in names:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def private(path: str, flags: int) -> int:
    """Open a file that only this user may read, independent of the umask; for `opener=`."""
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


# Lock files. They are held with `flock`, so the kernel releases them when a process crashes.

OWNER_BYTES = 1000
"""The maximum length of the name of an owner; longer names are truncated."""

TRIES, TRY_SECONDS = 25, 0.01
"""Tries for a held lock: a process that only reads the owner also holds it briefly."""


class HeldError(Exception):
    """Another process holds a lock; the message names its owner, or is empty if unknown."""


class FileLock:
    """An exclusive lock on a path. The file holds the name of the owner, for messages.

    The kernel releases the lock when the process ends for any reason. A file without a lock may
    remain; it has no effect. Two locks of one process also exclude each other. On NFS the lock
    excludes other hosts.
    """

    def __init__(
        self, path: str | Path, owner: str = "", *, create: bool = True, tries: int = TRIES
    ) -> None:
        """Take the lock. Waits at most a quarter of a second by default, not with `tries=1`.

        Raises HeldError if another process holds it, FileNotFoundError if the folder does not
        exist, or if the file does not and `create` is false, and any other OSError if locking
        fails.
        """
        self._path = path
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
        while True:
            self._file = os.open(path, flags, 0o600)
            try:
                self._lock(tries)
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

    def leave(self) -> None:
        """Release the lock; the file stays."""
        os.close(self._file)

    def _lock(self, tries: int) -> None:
        for number in range(1, tries + 1):
            try:
                return fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if number == tries:
                    raise
                time.sleep(TRY_SECONDS)

    def _is_in_place(self) -> bool:
        """Return whether the path still names our file, which owners remove before release."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


def holder(path: str | Path) -> str | None:
    """Return the name of the owner of the lock on a path, or None if no process holds it."""
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
    """Return the owner name of a job of this process, for messages of other processes."""
    since = time.strftime("%Y-%m-%d %H:%M:%S")
    return f"job {job!r} of process {os.getpid()} on {platform.node()} since {since}"


def _owner(file: int) -> str:
    return os.pread(file, OWNER_BYTES, 0).decode("utf-8", "replace")
