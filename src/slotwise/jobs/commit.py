"""The output directory of a job: parts are staged first, and moved into place on commit.

A directory has one writer at a time. The name of a part may include a folder:
"good/part-n-00000". Only files that slotwise wrote, which manifests list, are ever removed or
replaced. `_SUCCESS` is the manifest of a complete output. Other files are kept.
See docs/decisions/0019-output-locks-and-leftovers.md.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePosixPath
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from slotwise.core.errors import InputError
from slotwise.jobs.formats.files import (
    absolute,
    as_os_errors,
    file_system,
    missing_bucket,
    reason_of,
)
from slotwise.jobs.hosts.sockets import local_address, local_folder
from slotwise.jobs.work_folder import (
    NAME,
    FileLock,
    HeldError,
    holder,
    owner_of,
    work_folder_errors,
)

MANIFEST_VERSION = 1
PART = re.compile(
    r"([A-Za-z0-9][\w.-]*/)?(part-[a-z]-\d{5,}(\.[a-z]+)?|task-\d{5,}\.(out|err))", re.ASCII
)
"""The pattern of part names; a manifest that lists any other name is ignored."""

TEMPORARY = "_temporary"
SUCCESS = "_SUCCESS"

CHANGED_AT_ONCE = 16
"""Concurrent changes. On an object store, a move is a copy and a removal: some round trips."""


def place_of(output: str | Path, base_dir: str | Path | None) -> str:
    """Return the path or URL of an output directory, without a slash at its end.

    Raises InputError for the root of a file system, and for a chain of URLs, because fsspec
    cannot write directories there.
    """
    place = absolute(str(output), base_dir)
    if "\0" in place:
        raise InputError(f"output {place!r} has a null character; remove it")
    stripped = place.rstrip("/")
    if not stripped or (stripped.endswith(":") and "://" in place):
        raise InputError(
            f"output {str(output)!r} is the root of a file system; name a directory in it"
        )
    if "::" in place:
        raise InputError(
            f"output {str(output)!r} joins URLs by '::'; name a directory without that"
        )
    return stripped


def check_output(output: str, overwrite: bool) -> None:
    """Raise InputError if something already exists at the path of an output directory.

    Leftovers of a killed run do not count. Raises InputError also if the path cannot be read.
    """
    with _input_errors(output):
        fs, path = _find(output)
        if fs.isfile(path):
            raise InputError(
                f"output {output!r} is a file; name a directory that does not exist yet"
            )
        exists = fs.exists(path)
        for parent in map(str, PurePosixPath(path).parents):
            if fs.isfile(parent):
                raise InputError(
                    f"output {output!r} is below the file {parent!r}; name another"
                )
            if isinstance(fs, LocalFileSystem) and fs.isdir(parent):
                break  # All above are, too.
        if not exists and (bucket := missing_bucket(fs, path)):
            raise InputError(
                f"output {output!r}: bucket {bucket!r} not found; create it, or name another"
            )
        if overwrite or not exists:
            return
        if owner := holder(_lock_path(fs, path)):
            raise _is_being_written(output, owner)
        if _names(fs, path) != {TEMPORARY}:
            raise _exists(output)


def check_overwritten(output: str) -> None:
    """Raise InputError if a directory to overwrite has files of others, or cannot be read."""
    with _input_errors(output):
        fs, path = _find(output)
        if not fs.isdir(path):
            return
        names = _names(fs, path)
        is_unfinished = TEMPORARY in names and SUCCESS not in names
        if names and not is_unfinished and _manifest(fs, f"{path}/{SUCCESS}") is None:
            raise InputError(
                f"output {output!r} holds files that no job has written, so it is not"
                " overwritten; name another directory"
            )


def is_output_of(job: str, output: str, since: float) -> bool:
    """Whether a job has written an output of this machine, or begun to, since an instant.

    `since` is in Unix seconds. The process may have been killed then before it could say so.
    """
    layout = Layout("", output, is_shared=True)
    for manifest in layout.success, layout.placing:
        with suppress(OSError, ValueError, TypeError, KeyError), open(manifest, "rb") as file:
            plain, written = json.load(file), os.fstat(file.fileno()).st_mtime
            if plain["slotwise"] == MANIFEST_VERSION and plain["job"] == job:
                return written >= since
    return False


@contextmanager
def _input_errors(output: str) -> Iterator[None]:
    """Turn errors of the disk or the store into InputErrors about an output."""
    try:
        with as_os_errors():
            yield
    except OSError as error:
        raise InputError(
            f"output {output!r}: {reason_of(error)}; correct this, or name another"
        ) from error


class OutputDirectory:
    """The output of one job. All methods but `abort` may raise OSError.

    The directory is locked against other jobs from `open` to `commit` or `abort`.
    """

    def __init__(
        self,
        layout: Layout,
        overwrite: bool,
        job: str,
        parts: Iterable[str],
        kept: Iterable[str] = (),
    ) -> None:
        """`parts` are the names of all parts, `kept` those of files that are staged already."""
        self._layout = layout
        self._overwrite = overwrite
        self._job = job
        self._parts = frozenset(parts)
        self._kept = frozenset(kept)
        self._fs, self._path = _find(layout.output)
        self._lock: FileLock | None = None
        self._made: list[str] = []
        self._earlier: set[str] = set()
        self._placed: set[str] = set()

    @as_os_errors()
    def open(self) -> None:
        """Create the directory and lock it. Staged files of killed runs are removed.

        Raises InputError if the directory is in use or must not be overwritten.
        """
        check_output(self._layout.output, self._overwrite)
        path = PurePosixPath(self._path)
        # The directory and its parents that do not exist yet, innermost first.
        places = map(str, (path, *path.parents))
        self._made = list(takewhile(lambda place: not self._fs.exists(place), places))
        try:
            self._take_lock()
            self._earlier = self._earlier_files()
            self._refuse_foreign()
            own = self._layout.staging.rpartition("/")[2]
            for name in _names(self._fs, self._inner(self._layout.temporary)) - {own}:
                if NAME.fullmatch(name):
                    self._remove(f"{self._layout.temporary}/{name}")
            self._clear_staging()
            self._fs.makedirs(self._inner(self._layout.staging), exist_ok=True)
        except OSError as error:
            self._close()
            if not isinstance(self._fs, LocalFileSystem):
                raise  # A store may be reachable later.
            raise InputError(
                f"output {self._layout.output!r} cannot be created: {error.strerror or error};"
                " correct this, or name another directory"
            ) from error
        except BaseException:
            self._close()
            raise

    def staged_path(self, staged: str) -> str:
        """Return the path of a staged file on this machine; empty if it is in a store."""
        return self._inner(staged) if isinstance(self._fs, LocalFileSystem) else ""

    def keep(self, names: Iterable[str]) -> None:
        """Leave the staged files with these names when the job is aborted."""
        self._kept = frozenset(names)

    @as_os_errors()
    def discard(self, staged: str) -> None:
        """Remove a staged part if it exists. Allowed after `commit` and `abort`, too."""
        self._remove(staged)

    @as_os_errors()
    def commit(self, staged: Mapping[str, str]) -> None:
        """Move the staged parts to their names, then write _SUCCESS.

        Old output is removed only now, when all new parts exist. The commit can be retried
        after an OSError. Raises FileExistsError if a file that slotwise did not write has the
        name of a part.
        """
        ours = self._earlier | self._placed
        present = self._present({*staged, *ours})
        for name in sorted(present & {*staged, SUCCESS, *ours}):
            if name not in ours or self._fs.isdir(f"{self._path}/{name}"):
                raise FileExistsError(
                    errno.EEXIST, "there is a file that slotwise did not write", name
                )
        # If the process is killed during the commit, the next run reads here which files are
        # slotwise's own.
        self._write(self._layout.placing, {*staged, *self._earlier} - {SUCCESS})
        self._remove_file(SUCCESS)
        self._each(self._remove_file, sorted(self._earlier - self._placed))
        self._change_folders(_folders(self._earlier), _folders(staged))
        missing = sorted(staged.keys() - self._placed)
        self._each(lambda name: self._place(staged[name], name), missing)
        success = f"{self._layout.staging}/{SUCCESS}"
        self._write(success, staged)
        self._place(success, SUCCESS)
        self._made, self._kept = [], frozenset()
        self._remove_placing()
        self._close()

    def abort(self) -> None:
        """Remove what the job created. The next job with this output removes what remains."""
        with suppress(OSError):
            self._remove_placed()
        self._close()

    @as_os_errors()
    def _remove_placed(self) -> None:
        self._each(self._remove_file, sorted(self._placed))
        left = self._present(self._earlier) & self._earlier
        if not left or SUCCESS in left:
            self._remove_placing()
        else:  # The next job may remove the rest of a partly overwritten output.
            self._write(self._layout.placing, left)

    def _take_lock(self) -> None:
        """Create the directory for staged files and take the lock in it."""
        if not self._made and _names(self._fs, self._path) == {TEMPORARY}:
            self._made = [self._path]  # A killed run created it.
        while self._lock is None:
            self._make()
            # A job that has just ended may remove the directory before our lock exists.
            with suppress(FileNotFoundError):
                try:
                    self._lock = FileLock(_lock_path(self._fs, self._path), owner_of(self._job))
                except HeldError as held:
                    raise _is_being_written(self._layout.output, str(held)) from None

    def _make(self) -> None:
        """Create the directory for staged files, and that of the output with it in one step.

        A run that is killed between two would leave an empty one, which counts as an output.
        """
        if self._path in self._made and isinstance(self._fs, LocalFileSystem):
            folder, name = os.path.split(self._path)
            new = f"{folder}/.{name}.new"
            try:
                os.makedirs(f"{new}/{TEMPORARY}", exist_ok=True)
                os.rename(new, self._path)
            except OSError:  # Another job makes it, too, or the name is too long.
                for empty in f"{new}/{TEMPORARY}", new:
                    with suppress(OSError):
                        os.rmdir(empty)
        self._fs.makedirs(self._inner(self._layout.temporary), exist_ok=True)

    def _earlier_files(self) -> set[str]:
        """Return the names of the files that slotwise wrote, from the manifests."""
        success, placing = (
            _manifest(self._fs, self._inner(path))
            for path in (self._layout.success, self._layout.placing)
        )
        return {*(success or ()), *(placing or ()), *([SUCCESS] if success is not None else ())}

    def _refuse_foreign(self) -> None:
        """Raise InputError for files that slotwise did not write. The lock is held."""
        output = self._layout.output
        names = _names(self._fs, self._path) - {TEMPORARY}
        if names and not self._overwrite:
            raise _exists(output)
        if self._overwrite:
            check_overwritten(output)
        folders = _folders(self._parts)
        files = {name for name in folders & names if self._fs.isfile(f"{self._path}/{name}")}
        if foreign := sorted(
            (self._present(self._parts) & self._parts - self._earlier) | files
        ):
            raise InputError(
                f"output {output!r} holds {foreign[0]!r}, which no job has written, so it is"
                " not overwritten; move that file, or name another directory"
            )

    def _close(self) -> None:
        """Remove staged files, release the lock, and remove directories left empty."""
        with suppress(OSError), as_os_errors():  # The next job removes what remains.
            self._clear_staging()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        for empty in (self._inner(self._layout.temporary), *self._made):
            # Another job may have put its output next to ours.
            with suppress(OSError), as_os_errors():
                self._fs.rmdir(empty)

    def _present(self, parts: Iterable[str]) -> set[str]:
        """Return the names in the directory and in the folders of these parts."""
        names = _names(self._fs, self._path)
        inside = (
            f"{folder}/{name}"
            for folder in _folders(parts) & names
            for name in _names(self._fs, f"{self._path}/{folder}")
        )
        return {*names, *inside}

    def _change_folders(self, earlier: set[str], needed: set[str]) -> None:
        """Remove empty folders that are no longer needed, and create missing ones."""
        for folder in sorted(earlier - needed):
            with suppress(OSError), as_os_errors():
                self._fs.rmdir(f"{self._path}/{folder}")
        for folder in sorted(needed):
            path = f"{self._path}/{folder}"
            if not self._fs.exists(path):
                self._made.insert(0, path)
                self._fs.makedirs(path, exist_ok=True)

    def _inner(self, path: str) -> str:
        inner: str = self._fs._strip_protocol(path)
        return inner

    def _clear_staging(self) -> None:
        """Remove staged files, except those that are kept."""
        if not self._kept:
            self._remove(self._layout.staging)
            return
        for name in _names(self._fs, self._inner(self._layout.staging)) - self._kept:
            self._remove(f"{self._layout.staging}/{name}")

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm(self._inner(path), recursive=True)

    def _remove_file(self, name: str) -> None:
        """Remove a file of the output; a directory of that name is kept."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(f"{self._path}/{name}")

    def _remove_placing(self) -> None:
        with suppress(OSError), as_os_errors():
            self._fs.rm_file(self._inner(self._layout.placing))

    def _each(self, change: Callable[[str], None], names: Sequence[str]) -> None:
        """Change files; concurrently on a remote file system that supports it."""
        if not getattr(self._fs, "async_impl", False):
            for name in names:
                change(name)
            return
        with ThreadPoolExecutor(CHANGED_AT_ONCE) as threads:
            for done in [threads.submit(change, name) for name in names]:
                done.result()

    def _place(self, source: str, name: str) -> None:
        """Move a staged file into place."""
        target = f"{self._layout.output}/{name}"
        if isinstance(self._fs, LocalFileSystem):
            os.replace(self._inner(source), self._inner(target))
        else:
            self._fs.mv(self._inner(source), self._inner(target))
        self._placed.add(name)

    def _write(self, path: str, parts: Iterable[str]) -> None:
        plain = {"slotwise": MANIFEST_VERSION, "job": self._job, "parts": sorted(parts)}
        self._fs.pipe_file(self._inner(path), (json.dumps(plain) + "\n").encode())


def _find(output: str) -> tuple[Any, str]:
    """Return the file system of an output, without cached listings, and the path in it."""
    fs, path = file_system(output, "output")
    fs.invalidate_cache()  # Other processes write there.
    return fs, path


def _lock_path(fs: Any, path: str) -> Path:
    """Return the lock file: in the output directory, or on this machine for a remote output."""
    if isinstance(fs, LocalFileSystem):
        return Path(path) / TEMPORARY / "lock"
    name = hashlib.sha256(fs.unstrip_protocol(path).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"slotwise-output-{os.geteuid()}-{name}.lock"


def _names(fs: Any, path: str) -> set[str]:
    """Return the names of the entries of a directory; empty if it does not exist."""
    fs.invalidate_cache(path)  # Other processes write there.
    try:
        listed = fs.ls(path, detail=False)
    except FileNotFoundError:
        return set()
    return {entry.rstrip("/").rpartition("/")[2] for entry in listed}


def _folders(parts: Iterable[str]) -> set[str]:
    return {folder for part in parts if (folder := part.rpartition("/")[0])}


def _manifest(fs: Any, path: str) -> list[str] | None:
    """Return the parts in a manifest, or None if it is missing or not slotwise's own."""
    try:
        plain = json.loads(fs.cat_file(path))
        names = [str(name) for name in plain["parts"]]
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None
    is_ours = plain.get("slotwise") == MANIFEST_VERSION
    return names if is_ours and all(map(PART.fullmatch, names)) else None


def _exists(output: str) -> InputError:
    return InputError(
        f"output {output!r} exists; name another directory, remove it, or set"
        " overwrite: true (--overwrite)"
    )


def _is_being_written(output: str, owner: str) -> InputError:
    writer = owner or "another run"
    return InputError(
        f"output {output!r} is being written by {writer}; wait until it ends, or name another"
        " directory"
    )


# The paths of a job's files while it runs, and of its output.


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one job.

    work_dir   the folder of its intermediate files
    output     the directory of its output, which all hosts must see
    is_shared  whether all hosts see the intermediate files; otherwise each host has its own
    """

    work_dir: str
    output: str
    is_shared: bool

    @property
    def temporary(self) -> str:
        """The directory in the output for files that are removed when it is complete."""
        return f"{self.output}/_temporary"

    @property
    def staging(self) -> str:
        """The directory of uncommitted parts; unique to the job."""
        return f"{self.temporary}/{Path(self.work_dir).name}"

    @property
    def placing(self) -> str:
        """The manifest of parts that a commit is about to move into place."""
        return f"{self.temporary}/placing"

    @property
    def success(self) -> str:
        """The file, written last, that marks a complete output and lists its parts."""
        return f"{self.output}/_SUCCESS"

    def attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """Return the directory for the intermediate files of one attempt."""
        return self.folder / f"{phase}-{task}-{attempt}"

    @property
    def folder(self) -> Path:
        """The folder of the intermediate files on this host."""
        return Path(self.work_dir) if self.is_shared else local_folder(self.work_dir)

    def make_attempt_dir(self, phase: str, task: int, attempt: int) -> Path:
        """Create the directory, private to the user.

        Raises WorkFolderError, also if the job has ended.
        """
        directory = self.attempt_dir(phase, task, attempt)
        with work_folder_errors(directory.parent):
            if self.folder != Path(self.work_dir):  # The first task of the job on this host.
                directory.parent.mkdir(mode=0o700, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
        return directory

    @property
    def address(self) -> str:
        """The address that serves files of this host; empty if all hosts see them."""
        return "" if self.is_shared else local_address()

    def staged(self, part: str, attempt: int) -> str:
        """Return the path at which an attempt writes a part of the output."""
        return f"{self.staging}/{attempt}-{part.replace('/', '+')}"


# Checks before a run whether several processes can write to an output.


def check_writable(job: str, output: str) -> None:
    """Raise InputError for an output of a job that tasks could not write.

    Some causes, such as a full disk, are found only when they write.
    """
    fs, path = file_system(output, "output")
    reason = _local_obstacle(path) if isinstance(fs, LocalFileSystem) else _obstacle(fs)
    if reason:
        raise InputError(f"job {job!r}: output {output!r} {reason}")


def _obstacle(fs: Any) -> str:
    """Return why a store cannot hold output, or "" if it can."""
    if isinstance(fs, MemoryFileSystem):
        return (
            "is in the memory of one process, but several processes write it; name a directory"
            " or a store that all of them can reach, such as file:///tmp/out"
        )
    if not _removes_files(type(fs)):
        return "is in a read-only store; name a directory or another store"
    return ""


def _removes_files(kind: Any) -> bool:
    """Return whether file systems of this class can remove files, as every commit does."""
    if issubclass(kind, AsyncFileSystem) and kind._rm_file is not AsyncFileSystem._rm_file:
        return True
    plain = AbstractFileSystem
    return kind.rm_file is not plain.rm_file or kind._rm not in (plain._rm, AsyncFileSystem._rm)


def _local_obstacle(path: str) -> str:
    """Return why a directory cannot be created or written, or "" if no reason is found."""
    whole = PurePosixPath(path)
    found = next(parent for parent in (whole, *whole.parents) if os.path.lexists(parent))
    if not os.path.isdir(found):
        link = f" to {os.readlink(found)!r}" if os.path.islink(found) else ""
        what = f"a symbolic link{link} that leads to none" if link else "which is not one"
        return f"needs a directory at {str(found)!r}, {what}; correct this, or name another"
    if not os.access(found, os.W_OK | os.X_OK, effective_ids=True):
        return f"cannot be written: {str(found)!r} is not writable; name another"
    longest = os.pathconf(found, "PC_NAME_MAX")
    for name in whole.relative_to(found).parts:
        if (size := len(os.fsencode(name))) > longest:
            return (
                f"has a name of {size} bytes, longer than the limit of {longest}; name another"
            )
    return ""
