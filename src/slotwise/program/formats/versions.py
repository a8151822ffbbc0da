"""Versions of input files: whether a file is still the one with which its job was planned."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import IO, Any, NamedTuple

from fsspec.core import url_to_fs

from slotwise.model.errors import InputChanged

_MODIFIED = ("mtime", "modified", "last_modified", "LastModified", "updated", "created")
"""The names of fsspec's file systems for the time of a change; the first one counts."""
_CONTENT = ("ETag", "etag", "md5Hash", "CRC", "sha")
"""Their names for what stands for the content; all count."""


class Version(NamedTuple):
    """What tells one version of a file from another; None where a file system does not say.

    `modified` are nanoseconds since 1970 for files of this machine. `content` has the names and
    values of what stands for the content elsewhere.
    """

    size_bytes: int | None
    modified: Any
    content: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of_stat(cls, stat: os.stat_result) -> Version:
        """The version of a file of this machine."""
        return cls(stat.st_size, stat.st_mtime_ns)

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> Version:
        """The version of a file by what fsspec tells of it."""
        modified = next((info[name] for name in _MODIFIED if info.get(name)), None)
        if isinstance(modified, datetime):
            # Some object stores tell parts of a second in a list of files, but not of one file.
            modified = modified.replace(microsecond=0)
        content = tuple((name, info[name]) for name in _CONTENT if info.get(name))
        return cls(info.get("size"), modified, content)

    def may_be(self, other: Version) -> bool:
        """Whether nothing that both say is different. Times count where no content is known."""
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
    """Raise InputChanged unless a file is as it was planned; so must be the one that is open.

    Nothing is known of what is no file, whose version is None. For files of this machine it
    costs two system calls.
    """
    if planned is None:
        return
    try:
        found = _found(path, file)
    except FileNotFoundError as error:
        raise _changed(path, planned, "there is no such file") from error
    for version in found:
        if version != planned and not planned.may_be(version):
            raise _changed(path, planned, str(version))


def _found(path: str, file: IO[bytes] | None) -> list[Version]:
    """The version at a path, and that of the file that was opened there."""
    if "://" in path or "::" in path:
        fs, inner = url_to_fs(path)
        fs.invalidate_cache()
        return [Version.of_info(fs.info(inner))]
    found = [Version.of_stat(os.stat(path))]
    if file is not None:
        with suppress(AttributeError, OSError):  # Not every decompressor tells what it reads.
            found.append(Version.of_stat(os.fstat(file.fileno())))
    return found


def _changed(path: str, planned: Version, now: str) -> InputChanged:
    return InputChanged(
        f"input {path!r} has changed since its job was planned. Then: {planned}. Now: {now}."
        " Run the job again when nothing writes to its input, or give it a copy"
    )


def _time(modified: Any) -> str:
    """As `ls --full-time` prints it: the whole nanoseconds may be all that differs."""
    if not isinstance(modified, int):
        return str(modified)
    seconds, rest = divmod(modified, 10**9)
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}.{rest:09}"
