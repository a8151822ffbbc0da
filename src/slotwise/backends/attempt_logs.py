"""The files with what attempts print: `JOB/TASK.ATTEMPT.out` and `.err` in one folder.

They are best effort: a full disk or an exceeded quota drops output with one warning, and never
fails a task. A file is created at the first byte, so an attempt that prints nothing has none.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from slotwise.core.decisions import Launch
from slotwise.core.job import Job
from slotwise.jobs.commands import TAIL_BYTES

STREAMS = OUT, ERR = "out", "err"
"""The names of the streams, and the suffixes of their files."""

ATTEMPT_BYTES_MAX = 16 << 20
"""The most bytes that are kept of one stream of an attempt."""

BLOCK_BYTES = 4096
"""The least space that a file takes on disk."""

NAME_BYTES_MAX = 200
"""The maximum length of the name of a job in the name of its folder."""

_ESCAPED = re.compile(r"[\x00-\x1f\x7f/%\ud800-\udfff]|^\.")
_FILE = re.compile(r"(?:(?P<phase>.+)-)?(?P<task>\d+)\.(?P<attempt>\d+)\.(?P<stream>out|err)")


class Printing(Protocol):
    """What takes the output of one attempt.

    is_shown  whether the terminal shows it
    is_kept   whether it is kept
    """

    is_shown: bool
    is_kept: bool

    def write(self, stream: str, data: bytes) -> None:
        """Take some bytes of a stream. May be called after `close`."""
        ...

    def close(self) -> None:
        """Note that the attempt has ended. Idempotent."""
        ...


class AttemptLogs:
    """The folder with the output of all attempts of a run.

    At most `bytes_max` bytes are kept in all, and `ATTEMPT_BYTES_MAX` of a stream of an
    attempt. `warn` is called if output is dropped for another reason than the latter.
    """

    def __init__(self, folder: Path, bytes_max: int, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self._left, self._warn = bytes_max, warn

    def path(self, job: Job, launch: Launch, stream: str) -> str:
        """The path of the file for a stream of an attempt."""
        phase = f"{file_name(launch.phase.phase)}-" if len(job.phases) > 1 else ""
        name = f"{phase}{launch.task}.{launch.attempt}.{stream}"
        return f"{self.folder}/{file_name(job.id)}/{name}"

    def create(self, path: str) -> int | None:
        """Open a new file, of which the descriptor is returned; None if that fails."""
        if self._left < BLOCK_BYTES:
            self._drop(path, "the output of this run has reached its limit")
            return None
        try:
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            file = os.open(path, flags, 0o600)
        except OSError as error:
            self._drop(path, error.strerror or str(error))
            return None
        self._left -= BLOCK_BYTES
        return file

    def append(self, path: str, file: int, data: bytes) -> None:
        """Write to an open file."""
        if self._left < len(data):
            self._drop(path, "the output of this run has reached its limit")
            return
        try:
            while data:
                written = os.write(file, data)
                self._left -= written
                data = data[written:]
        except OSError as error:
            self._drop(path, error.strerror or str(error))

    def free(self, size: int) -> None:
        """Count bytes as free that others have removed."""
        self._left += size

    def link(self, path: str, target: str) -> None:
        """Make a name for a file of the job itself, which is created empty."""
        try:
            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))
            _link_in_folder(target, path)
        except OSError as error:
            self._drop(path, error.strerror or str(error))

    def settle(self, path: str, target: str) -> None:
        """Make the name of a file independent of the job, whose attempt has ended.

        An empty file is removed. A file on another file system is copied up to its limit.
        """
        with suppress(OSError):
            if not os.path.lexists(path) and os.path.getsize(target):
                _link_in_folder(target, path)  # The disk was full when it began.
            found = os.lstat(path)
            if not stat.S_ISLNK(found.st_mode):
                if not found.st_size:
                    os.unlink(path)
                return
            os.unlink(path)
            with open(target, "rb") as source:
                data = source.read(ATTEMPT_BYTES_MAX + 1)
            if data and (file := self.create(path)) is not None:
                self.append(path, file, _cut(data, len(data)))
                os.close(file)

    def _drop(self, path: str, why: str) -> None:
        self._warn(f"output of tasks is not kept: {path}: {why}; the run continues")


def _link_in_folder(target: str, path: str) -> None:
    """Give a file another name, in a folder that is made if it is missing. Raises OSError."""
    try:
        _link(target, path)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        _link(target, path)


def _link(target: str, path: str) -> None:
    """Give a file another name. FileNotFoundError if there is no folder for that."""
    try:
        os.link(target, path)
    except FileNotFoundError:
        raise
    except OSError:  # It is on another file system.
        os.symlink(target, path)


class AttemptOutput:
    """What one attempt prints, with the end of its stderr. Implements `Printing`.

    tail   the end of stderr
    files  its files by stream; None until it prints
    """

    __slots__ = (
        "_job",
        "_launch",
        "_linked",
        "_logs",
        "files",
        "is_kept",
        "is_shown",
        "tail",
    )

    def __init__(
        self, logs: AttemptLogs | None, job: Job, launch: Launch, *, is_shown: bool
    ) -> None:
        self._logs, self.is_kept = logs, logs is not None
        self.is_shown, self.tail = is_shown, b""
        self._job, self._launch = job, launch
        self.files: dict[str, _Kept] | None = None
        self._linked: Sequence[tuple[str, str]] = ()

    def write(self, stream: str, data: bytes) -> None:
        """Append to the file of the stream, which is created or opened again if needed."""
        if stream == ERR:
            self.tail = (self.tail + data)[-TAIL_BYTES:]
        if self._logs is None:
            return
        files = self.files = {} if self.files is None else self.files
        kept = files.get(stream)
        if kept is None:
            kept = files[stream] = _Kept(self._logs.path(self._job, self._launch, stream))
        if kept.size > ATTEMPT_BYTES_MAX:
            return
        if kept.file is None:
            kept.file = self._logs.create(kept.path)
        if kept.file is not None:
            kept.size += len(data)
            self._logs.append(kept.path, kept.file, _cut(data, kept.size))

    def link(self, targets: Sequence[str]) -> None:
        """Keep the files of stdout and stderr to which the attempt writes itself."""
        if self._logs is not None:
            paths = [self._logs.path(self._job, self._launch, stream) for stream in STREAMS]
            self._linked = tuple(zip(paths, targets, strict=True))
            for path, target in self._linked:
                self._logs.link(path, target)

    def close(self) -> None:
        """Close the files, before the job removes or moves its own."""
        if self.files is not None:
            for kept in self.files.values():
                file, kept.file = kept.file, None  # Before a signal can interrupt this.
                if file is not None:
                    os.close(file)
        if self._linked:
            assert self._logs is not None
            for path, target in self._linked:
                self._logs.settle(path, target)
            self._linked = ()

    @property
    def path(self) -> str:
        """The file of stderr, or else of stdout, to name in messages; empty without any."""
        if self._logs is not None and (self.files or not self.is_shown):
            for stream in (ERR, OUT):
                path = self._logs.path(self._job, self._launch, stream)
                if os.path.exists(path):
                    return path
        return ""


class _Kept:
    """A file of an attempt: its path, its descriptor while it is open, and its size."""

    __slots__ = ("file", "path", "size")

    def __init__(self, path: str) -> None:
        self.path, self.size = path, 0
        self.file: int | None = None


def _cut(data: bytes, size: int) -> bytes:
    """The end `data` of a file of this size, without what is above the limit, and a note."""
    if size <= ATTEMPT_BYTES_MAX:
        return data
    note = f"\n[slotwise keeps {ATTEMPT_BYTES_MAX >> 20} MiB of this output; the rest is cut]\n"
    return data[: ATTEMPT_BYTES_MAX - size] + note.encode()


# Names of files, and their meaning.


class AttemptFile(NamedTuple):
    """A file with the output of an attempt, in the order in which they are shown.

    `phase` is empty if its job has only one.
    """

    job: str
    phase: str
    task: int
    attempt: int
    stream: str
    path: Path


def attempt_files(folder: Path) -> Iterator[AttemptFile]:
    """The files in the folder of a run, in no order."""
    for one in folder.glob("*"):
        yield from files_of_job(one)


def files_of_job(folder: Path) -> Iterator[AttemptFile]:
    """The files in the folder of a job, in no order."""
    for path in folder.glob("*.*.*"):
        if found := _FILE.fullmatch(path.name):
            phase, job = unquote(found["phase"] or ""), unquote(path.parent.name)
            task, attempt = int(found["task"]), int(found["attempt"])
            yield AttemptFile(job, phase, task, attempt, found["stream"], path)


def file_name(text: str) -> str:
    """A readable name for a file, different for each text: "a/b" becomes "a%2Fb"."""
    name = _ESCAPED.sub(_percent, text)
    if len(name.encode()) <= NAME_BYTES_MAX:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name.encode()[: NAME_BYTES_MAX - 9].decode(errors='ignore')}~{digest}"


def _percent(match: re.Match[str]) -> str:
    encoded = match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)
