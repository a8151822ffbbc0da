"""Find input files by path or pattern, and open local and remote files with fsspec."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import fsspec
from fsspec.utils import infer_compression

from slotwise.model.errors import InputError, OutputError
from slotwise.programs.formats.versions import Version, check_unchanged
from slotwise.programs.storage import as_os_errors, file_system, reason_of

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

WRITE_BYTES = 1 << 16
"""How much of an output is collected before it is written."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file with its size and version at planning time."""

    path: str
    size_bytes: int
    version: Version | None = None

    @property
    def is_compressed(self) -> bool:
        """Whether its name has the suffix of a compressed file (.gz, .bz2, .xz, ...)."""
        return infer_compression(_link(self.path)[1]) is not None


def absolute(path: str, base_dir: str | Path | None = None) -> str:
    """Make a local path absolute, relative to `base_dir`; return a URL unchanged."""
    if "://" in path or "::" in path:
        return path.removeprefix("file://")
    # expanduser leaves a "~" that is no user's home unchanged.
    return str((Path(base_dir or ".") / os.path.expanduser(path)).absolute())


def find_inputs(patterns: Sequence[str], base_dir: str | Path | None = None) -> list[InputFile]:
    """Return the files of all patterns, each once, sorted by path within a pattern.

    A pattern is a path, a glob, or a directory, which means the files in it. Names that begin
    with "_" or "." are skipped in directories, and by globs that do not state this character.
    Raises InputError for a pattern that matches no file.
    """
    found: dict[str, InputFile] = {}
    for pattern in patterns:
        matches = _matches(absolute(pattern, base_dir))
        if not matches:
            raise InputError(
                f"input {pattern!r}: no file matches; give a path, a directory with files, or a"
                " glob such as 'books/*.txt' (names that begin with '_' or '.' are skipped)"
            )
        found.update((file.path, file) for file in matches)
    return list(found.values())


def open_input(path: str) -> IO[bytes]:
    """Open an input file for reading; decompress a compressed one."""
    if "://" not in path and infer_compression(path) is None:
        return open(path, "rb")
    opened = fsspec.open(path, "rb", compression="infer")
    file = cast("IO[bytes]", opened.open())
    _IN_ARCHIVES[file] = opened.fs
    return file


_IN_ARCHIVES: WeakKeyDictionary[IO[bytes], Any] = WeakKeyDictionary()
"""The file systems of open files: one of an archive closes the archive when it is deleted."""


@contextmanager
def reading(path: str, planned: Version | None) -> Iterator[IO[bytes]]:
    """Open an input file as a context; raise InputChanged if it has changed since planning.

    This is checked after opening, and again after reading.
    """
    try:
        file = open_input(path)
    except FileNotFoundError:
        check_unchanged(path, planned)
        raise
    with file:
        check_unchanged(path, planned)
        yield file
        check_unchanged(path, planned, file)


def create_output(path: str) -> IO[bytes]:
    """Create an output file; its directory must exist. OutputError if it cannot be created.

    If it is local, also if it cannot be written later.
    """
    try:
        if "://" not in path:
            return io.BufferedWriter(LocalOutput(path, "wb"), WRITE_BYTES)
        with as_os_errors():
            return cast("IO[bytes]", fsspec.open(path, "wb").open())
    except OSError as error:
        raise OutputError.of(path, error) from error


class LocalOutput(io.FileIO):
    """A local output file. OutputError if it cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of these bytes: how many."""
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError.of(str(self.name), error) from error


def _matches(path: str) -> list[InputFile]:
    try:
        with as_os_errors():
            fs, inner = file_system(path, "input")
            infos = _infos(fs, inner)
            if "://" in path:
                names = [info["name"] for info in infos if info["type"] == "file"]
                files = [_remote(fs, name, path, inner) for name in names]
            else:
                files = [file for info in infos for file in _local(info["name"])]
    except (OSError, ValueError) as error:  # ValueError for a NUL in the path.
        place = getattr(error, "filename", None) or path
        reason = reason_of(error)
        if "\0" not in place and os.path.islink(place):
            reason = f"{reason}; it is a symbolic link to {os.readlink(place)!r}"
        raise InputError(f"input {place!r}: {reason}; correct this, or leave it out") from error
    return sorted(files, key=lambda file: file.path)


def _infos(fs: Any, path: str) -> list[dict[str, Any]]:
    """The entries that match a path, as fsspec lists them; for a directory, its contents."""
    try:
        infos = [fs.info(path)]
    except FileNotFoundError:
        if os.path.islink(path):
            raise
        found = fs.glob(path, detail=True).items()
        infos = [info for name, info in found if not _is_skipped(name, path)]
        path = infos[0]["name"] if infos else path
    if len(infos) == 1 and infos[0]["type"] == "directory":
        infos = [info for info in fs.ls(path, detail=True) if not _is_hidden(info["name"])]
    return infos


def _is_skipped(name: str, pattern: str) -> bool:
    """Whether a name that matches a glob is hidden, or in a hidden folder.

    Folders before the first wildcard count as stated. As in a shell, a glob such as ".*" or
    "**/_part*" asks for names that begin with this character.
    """
    parts = _parts(pattern)
    stated = next((n for n, part in enumerate(parts) if has_magic(part)), len(parts))
    asked = {part[0] for part in parts[stated:]}
    return any(part[0] not in asked and _is_hidden(part) for part in _parts(name)[stated:])


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _local(path: str) -> Iterator[InputFile]:
    """The local file at a path, or nothing for a directory. Links are followed."""
    found = os.stat(path)
    if stat.S_ISREG(found.st_mode):
        yield InputFile(path, found.st_size, Version.of_stat(found))
    elif not stat.S_ISDIR(found.st_mode):
        raise InputError(
            f"input {path!r} is a pipe, a socket or a device, which can be read only once; copy"
            " its contents to a file"
        )


def _link(path: str) -> tuple[str, str, str]:
    """The link of a chain of URLs that names the file, between what is before and after it.

    As in simplecache::zip://a.txt::s3://bucket/b.zip. A path or a single URL is all of it.
    """
    links = path.split("::") if "://" in path else [path]
    first = next(n for n, link in enumerate(links) if "://" in link or len(links) == 1)
    before, after = links[:first], links[first + 1 :]
    return "".join(f"{one}::" for one in before), links[first], "".join(f"::{o}" for o in after)


def _remote(fs: Any, name: str, pattern: str, inner: str) -> InputFile:
    """The file with this name among those that match a URL, whose path there is `inner`."""
    # A listing may differ from the info of the single file, which tasks will read, too.
    info = fs.info(name)
    before, link, after = _link(pattern)
    parts = urlsplit(link)
    # Names of files lack the server of a URL such as webhdfs://namenode:9870/in/*.txt.
    is_apart = bool(parts.netloc) and parts.path == inner
    url = f"{parts.scheme}://{parts.netloc}{name}" if is_apart else fs.unstrip_protocol(name)
    return InputFile(f"{before}{url}{after}", info["size"], Version.of_info(info))


def _is_hidden(name: str) -> bool:
    return name.rstrip("/").rpartition("/")[2].startswith(("_", "."))
