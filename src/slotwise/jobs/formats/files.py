"""Find input files by path or pattern, and open local and remote files with fsspec."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from glob import has_magic
from pathlib import Path
from traceback import walk_tb
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import fsspec
from fsspec.core import url_to_fs
from fsspec.utils import infer_compression

from slotwise.core.errors import InputChanged, InputDiffers, InputError, OutputError
from slotwise.jobs.hosts.sockets import local_address, split_address

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


WRITE_BYTES = 1 << 16
"""The size of the buffer of an output file in bytes."""


@dataclass(frozen=True, slots=True)
class InputFile:
    """An input file with its size and version at planning time."""

    path: str
    size_bytes: int
    version: Version | None = None

    @property
    def is_compressed(self) -> bool:
        """Whether its name has a suffix of compressed files (.gz, .bz2, .xz, ...)."""
        return infer_compression(_link(self.path)[1]) is not None


def absolute(path: str, base_dir: str | Path | None = None) -> str:
    """Make a local path absolute, relative to `base_dir`; return a URL unchanged."""
    if "://" in path or "::" in path:
        return path.removeprefix("file://")
    # expanduser leaves a "~" that is not the home of a user unchanged.
    return str((Path(base_dir or ".") / os.path.expanduser(path)).absolute())


def find_inputs(patterns: Sequence[str], base_dir: str | Path | None = None) -> list[InputFile]:
    """Return the files of all patterns, each once, sorted by path within a pattern.

    A pattern is a path, a glob, or a directory, which stands for its files. Names that begin
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
"""The file systems of open files: that of an archive closes it when it is deleted."""


@contextmanager
def reading(path: str, planned: Version | None) -> Iterator[IO[bytes]]:
    """Open an input file as a context; raise InputChanged if it has changed since planning.

    This is checked after opening and again after reading.
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
    """Create an output file in an existing directory. Raises OutputError.

    Writing to a local file raises OutputError, too.
    """
    try:
        if "://" not in path:
            return io.BufferedWriter(LocalOutput(path, "wb"), WRITE_BYTES)
        with as_os_errors():
            return cast("IO[bytes]", fsspec.open(path, "wb").open())
    except OSError as error:
        raise OutputError.of(path, error) from error


class LocalOutput(io.FileIO):
    """A local output file. Raises OutputError if it cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write some of these bytes and return the number."""
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
    """Return the entries that match a path, as fsspec lists them; a directory's contents."""
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
    """Return whether a name that matches a glob is hidden, or in a hidden folder.

    Folders before the first wildcard count as stated. As in a shell, a glob such as ".*" or
    "**/_part*" includes names that begin with this character.
    """
    parts = _parts(pattern)
    stated = next((n for n, part in enumerate(parts) if has_magic(part)), len(parts))
    included = {part[0] for part in parts[stated:]}
    return any(part[0] not in included and _is_hidden(part) for part in _parts(name)[stated:])


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _local(path: str) -> Iterator[InputFile]:
    """Yield the local file at a path, or nothing for a directory. Links are followed."""
    found = os.stat(path)
    if stat.S_ISREG(found.st_mode):
        yield InputFile(path, found.st_size, Version.of_stat(found))
    elif not stat.S_ISDIR(found.st_mode):
        raise InputError(
            f"input {path!r} is a pipe, a socket or a device, which can be read only once; copy"
            " its contents to a file"
        )


def _link(path: str) -> tuple[str, str, str]:
    """Split a chain of URLs at the link that names the file: before, link, after.

    An example is simplecache::zip://a.txt::s3://bucket/b.zip. A path or a single URL is a link.
    """
    links = path.split("::") if "://" in path else [path]
    first = next(n for n, link in enumerate(links) if "://" in link or len(links) == 1)
    before, after = links[:first], links[first + 1 :]
    return "".join(f"{one}::" for one in before), links[first], "".join(f"::{o}" for o in after)


def _remote(fs: Any, name: str, pattern: str, inner: str) -> InputFile:
    """Return the file of this name that matches the URL `pattern` with the path `inner`."""
    # A listing may differ from the info of a single file, which tasks will read.
    info = fs.info(name)
    before, link, after = _link(pattern)
    parts = urlsplit(link)
    # Names of files lack the server of a URL such as webhdfs://namenode:9870/in/*.txt.
    is_apart = bool(parts.netloc) and parts.path == inner
    url = f"{parts.scheme}://{parts.netloc}{name}" if is_apart else fs.unstrip_protocol(name)
    return InputFile(f"{before}{url}{after}", info["size"], Version.of_info(info))


def _is_hidden(name: str) -> bool:
    return name.rstrip("/").rpartition("/")[2].startswith(("_", "."))


# Versions of input files, which detect changes between planning and reading.

_MODIFIED = ("mtime", "modified", "last_modified", "LastModified", "updated", "created")
"""Names of the modification time in file systems of fsspec; the first one found is used."""
_CONTENT = ("ETag", "etag", "md5Hash", "CRC", "sha")
"""Names of checksums and tags of the content; all that are found are used."""


class Version(NamedTuple):
    """The attributes that distinguish versions of a file; None if a file system lacks one.

    `modified` is in nanoseconds since 1970 for local files. `content` has the names and values
    of checksums and tags of the content of remote files.
    """

    size_bytes: int | None
    modified: Any
    content: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of_stat(cls, stat: os.stat_result) -> Version:
        """Return the version of a local file."""
        return cls(stat.st_size, stat.st_mtime_ns)

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> Version:
        """Return the version of a file from its fsspec info."""
        modified = next((info[name] for name in _MODIFIED if info.get(name)), None)
        if isinstance(modified, datetime):
            # Some object stores give fractions of a second in listings, but not for one file.
            modified = modified.replace(microsecond=0)
        content = tuple((name, info[name]) for name in _CONTENT if info.get(name))
        return cls(info.get("size"), modified, content)

    def may_be(self, other: Version) -> bool:
        """Return whether all common attributes are equal; times count only without content."""
        mine, others = dict(self.content), dict(other.content)
        pairs = [(mine[name], others[name]) for name in mine.keys() & others.keys()]
        pairs = pairs or [(self.modified, other.modified)]
        pairs.append((self.size_bytes, other.size_bytes))
        return all(type(one) is not type(two) or one == two for one, two in pairs)

    def __str__(self) -> str:
        parts = [] if self.size_bytes is None else [f"{self.size_bytes} bytes"]
        if self.modified is not None:
            parts.append(f"modified {_time(self.modified)}")
        return ", ".join([*parts, *(f"{name} {value}" for name, value in self.content)])


def check_unchanged(path: str, planned: Version | None, file: IO[bytes] | None = None) -> None:
    """Raise InputChanged if the file at `path`, or the open `file`, differs from `planned`.

    Does nothing if `planned` is None, because the input is not a file. Costs two system calls
    for a local file.
    """
    if planned is None:
        return
    try:
        found = _found(path, file)
    except FileNotFoundError as error:
        raise _changed(path, planned, "it does not exist") from error
    for version in found:
        if version != planned and not planned.may_be(version):
            raise _changed(path, planned, str(version))


def _found(path: str, file: IO[bytes] | None) -> list[Version]:
    """Return the versions of the file at a path and, for a local path, of the open file."""
    if "://" in path or "::" in path:
        fs, inner = url_to_fs(path)
        fs.invalidate_cache()
        return [Version.of_info(fs.info(inner))]
    found = [Version.of_stat(os.stat(path))]
    if file is not None:
        with suppress(AttributeError, OSError):  # Some decompressors have no fileno.
            found.append(Version.of_stat(os.fstat(file.fileno())))
    return found


def _changed(path: str, planned: Version, now: str) -> InputChanged:
    if agent := local_address():
        return InputDiffers(
            f"input {path!r} is not the same on host {os.uname().nodename}"
            f" ({split_address(agent)[0]}) as when its job was planned. Then: {planned}. Here:"
            f" {now}. All hosts must see the same files; if they do, it has changed: run the"
            " job again when nothing writes to its input"
        )
    return InputChanged(
        f"input {path!r} has changed since its job was planned. Then: {planned}. Now: {now}."
        " Run the job again when nothing writes to its input, or use a copy of the input"
    )


def _time(modified: Any) -> str:
    """Format a time like `ls --full-time`, with the nanoseconds."""
    if not isinstance(modified, int):
        return str(modified)
    seconds, rest = divmod(modified, 10**9)
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}.{rest:09}"


# Local and remote file systems by path or URL. All their errors become OSErrors.

BUCKETS = frozenset({"abfs", "abfss", "az", "gcs", "gs", "oss", "s3", "s3a"})
"""The protocols of object stores that begin a path with a bucket or container."""


def file_system(path: str, what: str) -> tuple[Any, str]:
    """Return the file system of fsspec for a path or URL, and the path within it.

    Raises InputError, naming `what` the path is, for an unknown protocol or missing package.
    """
    with as_os_errors():
        try:
            return url_to_fs(path)  # type: ignore[no-any-return]
        except (ImportError, ValueError) as error:
            package = (getattr(error, "name", None) or "").partition(".")[0]
            remedy = f"; install the package {package}" if package else ""
            raise InputError(f"{what} {path!r}: {error}{remedy}") from error


def missing_bucket(fs: Any, path: str) -> str:
    """Return the bucket of a path if it is missing: some packages would create it; else ""."""
    protocols = [fs.protocol] if isinstance(fs.protocol, str) else fs.protocol
    bucket = path.partition("/")[0]
    return "" if BUCKETS.isdisjoint(protocols) or fs.exists(bucket) else bucket


@contextmanager
def as_os_errors() -> Iterator[None]:
    """Turn errors of the packages used by fsspec into OSErrors.

    The package for S3, for instance, raises its own exceptions if the store cannot be reached
    or credentials are missing; read-only packages raise NotImplementedError. Errors raised by
    slotwise's own code are bugs, and propagate.
    """
    try:
        yield
    except (OSError, InputError):
        raise
    except Exception as error:
        if _raised_by(error) == "slotwise":
            raise
        name, text = type(error).__name__, " ".join(str(error).split())
        raise OSError(f"{name}: {text}" if text else name) from error


def reason_of(error: Exception) -> str:
    """Return the message of an error in one line; some packages list all their attempts."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    first = " ".join(lines[0].split()) if lines else type(error).__name__
    return first.rstrip(":;,.") if len(lines) > 1 else first


def _raised_by(error: Exception) -> str:
    """Return the package whose code raised an error."""
    (frame, _), *_ = reversed(list(walk_tb(error.__traceback__)))
    module: str = frame.f_globals.get("__name__", "")
    return module.partition(".")[0]
