"""Where a task reads the files that others have left, on this host or on others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from slotwise.programs.hosts.here import is_local
from slotwise.programs.hosts.task_files import TaskFile
from slotwise.programs.shuffle.partitioned import Place


def in_place(files: Sequence[TaskFile], count: int, copies: Path) -> Iterator[Place]:
    """Where `count` parts of each file are; those of other hosts are fetched first.

    The names of their copies begin with `copies`. LostInputError if files of other hosts are
    missing, or these hosts cannot be reached.
    """
    if all(is_local(file.address) for file in files):
        yield from ((file.path, file.part) for file in files)
        return
    # Imported where it is needed: with ssl it takes long.
    from slotwise.programs.hosts.fetched import fetched

    yield from fetched(files, count, copies)
