"""Whether several processes can write to an output, as far as this is seen before a run."""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Any

from fsspec.asyn import AsyncFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractFileSystem

from slotwise.model.errors import InputError
from slotwise.programs.execution import WritesOutput
from slotwise.programs.storage import file_system


def check_writable(job: WritesOutput) -> None:
    """InputError for a job with an output that its tasks could not write.

    A full disk, for instance, is found only when they do.
    """
    fs, path = file_system(job.output, "output")
    reason = _local_obstacle(path) if isinstance(fs, LocalFileSystem) else _obstacle(fs)
    if reason:
        raise InputError(f"job {job.job.id!r}: output {job.output!r} {reason}")


def _obstacle(fs: Any) -> str:
    """Why a store cannot hold output."""
    if isinstance(fs, MemoryFileSystem):
        return (
            "is in the memory of one process, and several processes write it; name a directory"
            " or a store that all of them reach, such as file:///tmp/out"
        )
    if not _removes_files(type(fs)):
        return "is in a store that can only be read; name a directory or another store"
    return ""


def _removes_files(kind: Any) -> bool:
    """Whether file systems of this class remove files, as every commit does."""
    if issubclass(kind, AsyncFileSystem) and kind._rm_file is not AsyncFileSystem._rm_file:
        return True
    plain = AbstractFileSystem
    return kind.rm_file is not plain.rm_file or kind._rm not in (plain._rm, AsyncFileSystem._rm)


def _local_obstacle(path: str) -> str:
    """Why a directory cannot be made or written; empty if none is seen."""
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
                f"has a name of {size} bytes, and the longest there has {longest}; name another"
            )
    return ""
