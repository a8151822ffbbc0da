"""Versions of input files, to detect changes between planning and reading."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import IO, Any, NamedTuple

from fsspec.core import url_to_fs

from slotwise.model.errors import InputChanged, InputDiffers
from slotwise.programs.addresses import split_address
from slotwise.programs.hosts.here import address_here

_MODIFIED = ("mtime", "modified", "last_modified", "LastModified", "updated", "created")
"""Names that file systems of fsspec use for the modification time; the first found is used."""
_CONTENT = ("ETag", "etag", "md5Hash", "CRC", "sha")
"""Names that they use for checksums and tags of the content; all found are used."""


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
        """The version of a local file."""
        return cls(stat.st_size, stat.st_mtime_ns)

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> Version:
        """The version of a file from its fsspec info."""
        modified = next((info[name] for name in _MODIFIED if info.get(name)), None)
        if isinstance(modified, datetime):
            # Some object stores give fractions of a second in listings, but not for one file.
            modified = modified.replace(microsecond=0)
        content = tuple((name, info[name]) for name in _CONTENT if info.get(name))
        return cls(info.get("size"), modified, content)

    def may_be(self, other: Version) -> bool:
        """Whether all attributes that both have are equal; times count only without content."""
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

    Does nothing if `planned` is None: the input is not a file then. It costs two system calls
    for a local file.
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
    """The versions of the file at a path and, for a local path, of the open file."""
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
    if there := address_here():
        return InputDiffers(
            f"input {path!r} is not the same on host {os.uname().nodename}"
            f" ({split_address(there)[0]}) as when its job was planned. Then: {planned}. Here:"
            f" {now}. All hosts must see the same files; if they do, it has changed: run the"
            " job again when nothing writes to its input"
        )
    return InputChanged(
        f"input {path!r} has changed since its job was planned. Then: {planned}. Now: {now}."
        " Run the job again when nothing writes to its input, or use a copy of the input"
    )


def _time(modified: Any) -> str:
    """The time as `ls --full-time` prints it: two may differ only in the nanoseconds."""
    if not isinstance(modified, int):
        return str(modified)
    seconds, rest = divmod(modified, 10**9)
    return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M:%S}.{rest:09}"
