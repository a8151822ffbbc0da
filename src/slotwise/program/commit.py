"""The output directory of a job: parts aside first, in their places only at the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePosixPath

from fsspec.core import url_to_fs

from slotwise.model.errors import InputError
from slotwise.program.layout import Layout


def check_output(output: str, overwrite: bool) -> None:
    """Raise InputError if an output directory cannot be made because something is there."""
    try:
        fs, path = url_to_fs(output)
    except (ImportError, ValueError) as error:
        raise InputError(f"output {output!r}: {error}") from error
    if fs.isfile(path):
        raise InputError(
            f"output {output!r} is a file; name a directory that does not exist yet"
        )
    if fs.exists(path) and not overwrite:
        raise InputError(
            f"output {output!r} exists; name another directory, remove it, or set"
            " overwrite: true (--overwrite)"
        )


def check_overwritten(output: str) -> None:
    """Raise InputError if a directory that is to be overwritten is not one that a job wrote."""
    fs, path = url_to_fs(output)
    if not fs.isdir(path):
        return
    names = [entry.rstrip("/").rpartition("/")[2] for entry in fs.ls(path, detail=False)]
    # A job that was cut off by SIGKILL leaves its temporary parts and no mark of success.
    if names and "_SUCCESS" not in names and "_temporary" not in names:
        raise InputError(
            f"output {output!r} holds files that no job has written, and is not overwritten;"
            " name another directory"
        )


class OutputDirectory:
    """Opens, commits or takes back the output of one job; every method may raise OSError."""

    def __init__(self, layout: Layout, overwrite: bool) -> None:
        self._layout = layout
        self._overwrite = overwrite
        self._fs, self._path = url_to_fs(layout.output)
        self._existed = False
        self._made_parents: list[str] = []

    def open(self) -> None:
        """Make the directory, and the one for parts that are not committed."""
        check_output(self._layout.output, self._overwrite)
        self._existed = self._fs.exists(self._path)
        self._made_parents = self._missing_parents()
        self._remove(self._layout.temporary)
        self._fs.makedirs(self._inner(self._layout.temporary), exist_ok=True)

    def discard(self, phase: str, task: int, attempt: int) -> None:
        """Remove the part that an attempt wrote, if it did."""
        self._remove(self._layout.attempt_part(phase, task, attempt))

    def commit(self, phase: str, winners: Mapping[int, int]) -> None:
        """Put the winners' parts into their places, then write _SUCCESS.

        Old output that is to be overwritten goes only now, when all new parts are there.
        """
        temporary = self._inner(self._layout.temporary)
        for old in self._fs.ls(self._path, detail=False):
            if old.rstrip("/") != temporary:
                self._fs.rm(old, recursive=True)
        for task, attempt in sorted(winners.items()):
            source = self._inner(self._layout.attempt_part(phase, task, attempt))
            self._move(source, self._inner(self._layout.part(phase, task)))
        self._remove(self._layout.temporary)
        self._fs.touch(self._inner(self._layout.success))

    def abort(self) -> None:
        """Remove what the job made; what was there before stays."""
        if self._existed:
            self._remove(self._layout.temporary)
            return
        self._remove(self._layout.output)
        for parent in self._made_parents:
            # Another job may have put its output beside ours.
            with suppress(OSError):
                self._fs.rmdir(parent)

    def sweep(self) -> None:
        """Remove what was written aside after the commit or the abort, and nothing else."""
        self._remove(self._layout.temporary)
        for made in (self._path, *self._made_parents):
            with suppress(OSError):
                self._fs.rmdir(made)  # Only if it is empty.

    def _missing_parents(self) -> list[str]:
        parents = PurePosixPath(self._path).parents
        return [str(parent) for parent in parents if not self._fs.exists(str(parent))]

    def _inner(self, path: str) -> str:
        inner: str = self._fs._strip_protocol(path)
        return inner

    def _remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._fs.rm(self._inner(path), recursive=True)

    def _move(self, source: str, target: str) -> None:
        if "://" in self._layout.output:
            self._fs.mv(source, target)
        else:
            os.replace(source, target)
